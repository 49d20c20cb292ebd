package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/faultproxy"
)

// slot is a place in the fleet: one process after the other, all behind the same proxy.
type slot struct {
	number int
	proxy  *faultproxy.Proxy
	// busy: a fault is being done to it.
	busy bool

	mu         sync.Mutex
	generation int
	cmd        *exec.Cmd
	done       chan struct{}
	ready      chan struct{} // closed when it works, or has ended
	works      bool          // it has said so
	expected   bool          // its end is somebody's doing
}

// fleet is the worker processes of a drill.
type fleet struct {
	programs []string // one for each process by turns; the first is this program
	args     []string
	config   workerConfig
	database pgx.ConnConfig
	logs     io.Writer
	slots    []*slot
	// unexpected hears of processes that ended by themselves.
	unexpected func(worker string, err error)
	wg         sync.WaitGroup
}

func (s *slot) name() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return fmt.Sprintf("w%d.%d", s.number, s.generation)
}

// spawn starts the slot's next process.
func (f *fleet) spawn(s *slot, program int) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.generation++
	cfg := f.config
	cfg.Name = fmt.Sprintf("w%d.%d", s.number, s.generation)
	cfg.DatabaseURL = throughProxy(f.database, s.proxy.Port(), cfg.Name)
	env, err := json.Marshal(cfg)
	if err != nil {
		return err
	}
	cmd := exec.Command(f.programs[program%len(f.programs)], f.args...) //nolint:noctx // it ends by faults and by stop; it is this program, or one that the user named
	cmd.Env = append(os.Environ(), workerEnv+"="+string(env))
	cmd.Stdout, cmd.Stderr = f.logs, f.logs
	// A group of its own: Ctrl-C reaches the parent alone. And none outlives it, stopped ones included.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	says, tell, err := os.Pipe()
	if err != nil {
		return fmt.Errorf("drill: start a worker: %w", err)
	}
	cmd.ExtraFiles = []*os.File{tell}
	err = cmd.Start()
	_ = tell.Close() // the process has its own
	if err != nil {
		_ = says.Close()
		return fmt.Errorf("drill: start a worker: %w", err)
	}
	done, ready := make(chan struct{}), make(chan struct{})
	s.cmd, s.done, s.ready, s.works, s.expected = cmd, done, ready, false, false
	f.wg.Go(func() {
		defer close(ready)
		defer says.Close()
		if n, _ := says.Read(make([]byte, 1)); n > 0 { // otherwise the process has ended
			s.mu.Lock()
			s.works = s.works || s.cmd == cmd
			s.mu.Unlock()
		}
	})
	f.wg.Go(func() {
		err := cmd.Wait()
		s.mu.Lock()
		expected := s.expected
		s.mu.Unlock()
		close(done)
		// Whoever is asked to end does so well, unless a signal was faster.
		if !expected || cmd.ProcessState.ExitCode() > 0 {
			f.unexpected(cfg.Name, err)
		}
	})
	return nil
}

// signal sends a signal to the slot's process. ends says that it will end of it.
func (s *slot) signal(sig syscall.Signal, ends bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if ends {
		s.expected = true
	}
	_ = s.cmd.Process.Signal(sig) // one that is gone already is no news
}

// up waits until the process works. It does not wait for one that has ended.
func (s *slot) up(ctx context.Context, patience time.Duration) bool {
	s.mu.Lock()
	ready := s.ready
	s.mu.Unlock()
	select {
	case <-ready:
	case <-ctx.Done():
	case <-time.After(patience):
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.works
}

// gone waits until the process has ended.
func (s *slot) gone(patience time.Duration) bool {
	s.mu.Lock()
	done := s.done
	s.mu.Unlock()
	select {
	case <-done:
		return true
	case <-time.After(patience):
		return false
	}
}

// end ends the process: SIGTERM, and SIGKILL after the grace.
func (s *slot) end(grace time.Duration) {
	s.signal(syscall.SIGCONT, false)
	s.signal(syscall.SIGTERM, true)
	if !s.gone(grace) {
		s.signal(syscall.SIGKILL, true)
		s.gone(10 * time.Second)
	}
}

// stop ends all processes and their proxies.
func (f *fleet) stop(grace time.Duration) {
	var all sync.WaitGroup
	for _, s := range f.slots {
		s.mu.Lock()
		started := s.cmd != nil
		s.mu.Unlock()
		if started {
			all.Go(func() { s.end(grace) })
		}
	}
	all.Wait()
	f.wg.Wait()
	for _, s := range f.slots {
		_ = s.proxy.Close() // nothing is left that would use it
	}
}

// throughProxy is the address of the database behind a proxy, with the worker's name in the session.
func throughProxy(db pgx.ConnConfig, port int, worker string) string {
	u := url.URL{
		Scheme: "postgres", Host: net.JoinHostPort("127.0.0.1", strconv.Itoa(port)), Path: "/" + db.Database,
		User: url.UserPassword(db.User, db.Password),
	}
	q := url.Values{"sslmode": {"disable"}}
	for k, v := range db.RuntimeParams {
		if k != "options" && k != "application_name" {
			q.Set(k, v)
		}
	}
	q.Set("application_name", "weir drill "+worker)
	q.Set("options", strings.TrimSpace(db.RuntimeParams["options"]+" -c weir_drill.worker="+worker))
	u.RawQuery = strings.ReplaceAll(q.Encode(), "+", "%20") // a plus is a plus there
	return u.String()
}
