package desk_test

import (
	"os"
	"testing"

	"go.uber.org/goleak"
)

// A store and a handler hold no goroutine, so none may be left when the tests' servers and pools are closed.
func TestMain(m *testing.M) {
	code := m.Run()
	if code == 0 {
		if err := goleak.Find(); err != nil {
			_, _ = os.Stderr.WriteString(err.Error() + "\n")
			code = 1
		}
	}
	os.Exit(code)
}
