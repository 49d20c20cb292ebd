package main

import (
	"bytes"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// The test binary is the command, too.
const asUI = "WEIR_TEST_AS_UI"

func TestMain(m *testing.M) {
	if os.Getenv(asUI) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

type output struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.Write(p)
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.b.String()
}

func start(t *testing.T, env []string, args ...string) (*exec.Cmd, *output) {
	t.Helper()
	out := &output{}
	cmd := exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append(os.Environ(), asUI+"=1", "PORT=0"), env...)
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	return cmd, out
}

func TestUI_AWrongCommandLineOrConfigurationIsStatus2(t *testing.T) {
	t.Parallel()
	for _, args := range [][]string{{"--hots=127.0.0.1"}, {"--port=http"}, {"surplus"}} {
		cmd, out := start(t, []string{"DATABASE_URL=postgres://weir@127.0.0.1:1/weir"}, args...)
		var exit *exec.ExitError
		require.ErrorAs(t, cmd.Wait(), &exit)
		require.Equal(t, 2, exit.ExitCode(), out)
	}
}

// Whoever starts it learns at once what the pages would say, and it serves and stops all the same.
func TestUI_SaysAtTheStartWhatIsWrong(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		env  []string
		says []string
	}{
		"unreachable": {[]string{"DATABASE_URL=postgres://weir:hunter2@127.0.0.1:1/weir"}, []string{"The database does not answer"}},
		"not migrated": {
			[]string{"DATABASE_URL=" + pgtest.Empty(t), "WEIR_HTPASWD_FILE=hunter2", "WEIR_SMTP_HOST=mail.example.com"},
			[]string{"worker migrate up", `"variables":["WEIR_HTPASWD_FILE"]`},
		},
		"another schema": {[]string{"DATABASE_URL=" + pgtest.URL(t), "RIVER_SCHEMA=elsewhere"}, []string{"RIVER_SCHEMA"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cmd, out := start(t, c.env)
			for _, text := range append(c.says, "Serving") {
				require.Eventually(t, func() bool { return strings.Contains(out.String(), text) }, 20*time.Second, 20*time.Millisecond, text)
			}
			require.NotContains(t, out.String(), "hunter2")
			require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
			require.NoError(t, cmd.Wait(), out)
		})
	}
}

func TestUI_SaysNothingWhereAllIsWell(t *testing.T) {
	t.Parallel()
	cmd, out := start(t, []string{"DATABASE_URL=" + pgtest.URL(t)})
	require.Eventually(t, func() bool { return strings.Contains(out.String(), "Serving") }, 20*time.Second, 20*time.Millisecond)
	time.Sleep(time.Second)
	require.NotContains(t, out.String(), "WARN")
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait(), out)
}
