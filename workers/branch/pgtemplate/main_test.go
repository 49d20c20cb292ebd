package pgtemplate_test

import (
	"flag"
	"os"
	"testing"

	"go.uber.org/goleak"
)

// The test binary is also the worker process that is killed or stopped; see stages_test.go.
func TestMain(m *testing.M) {
	if os.Getenv(workerURL) != "" {
		os.Exit(beWorker())
	}
	// The stages wait for leases, not for processors. -parallel on the command line still decides.
	if err := flag.Set("test.parallel", "9"); err != nil {
		panic(err)
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
