package pgtemplate_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the worker process that is killed or stopped; see stages_test.go.
func TestMain(m *testing.M) {
	if os.Getenv(workerURL) != "" {
		os.Exit(beWorker())
	}
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}
