package demo

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// fleet is some real worker processes: this program again, as `worker run`.
type fleet struct {
	program string
	env     []string
	out     io.Writer

	mu    sync.Mutex
	procs map[int]*proc // by pid
	wg    sync.WaitGroup
}

type proc struct {
	cmd    *exec.Cmd
	killed bool
	done   chan struct{}
	err    error // of Wait; read after done
}

func newFleet(env []string, out io.Writer) (*fleet, error) {
	program, err := os.Executable()
	if err != nil {
		return nil, fmt.Errorf("find this program: %w", err)
	}
	return &fleet{program: program, env: env, out: out, procs: map[int]*proc{}}, nil
}

// spawn starts one more process.
func (f *fleet) spawn() (int, error) {
	cmd := exec.Command(f.program, "run") //nolint:noctx // it ends by stop, in order, and not with a context
	cmd.Env = append(os.Environ(), f.env...)
	cmd.Stdout, cmd.Stderr = f.out, f.out
	// A group of its own: Ctrl-C reaches the demo alone, which then stops its workers in order. And none outlives it.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGTERM}
	if err := cmd.Start(); err != nil {
		return 0, fmt.Errorf("start a worker: %w", err)
	}
	p := &proc{cmd: cmd, done: make(chan struct{})}
	f.mu.Lock()
	f.procs[cmd.Process.Pid] = p
	f.mu.Unlock()
	f.wg.Go(func() {
		p.err = cmd.Wait()
		close(p.done)
	})
	return cmd.Process.Pid, nil
}

// kill sends SIGKILL to the process that holds leases under owner, whose second part is its pid.
func (f *fleet) kill(owner string) (int, error) {
	parts := strings.Split(owner, ":")
	if len(parts) < 3 {
		return 0, fmt.Errorf("owner %q has no pid", owner)
	}
	pid, err := strconv.Atoi(parts[len(parts)-2])
	if err != nil {
		return 0, fmt.Errorf("owner %q has no pid", owner)
	}
	f.mu.Lock()
	p := f.procs[pid]
	if p != nil {
		p.killed = true
	}
	f.mu.Unlock()
	if p == nil {
		return 0, fmt.Errorf("owner %q is no worker of this demo", owner)
	}
	if err := p.cmd.Process.Kill(); err != nil {
		return 0, fmt.Errorf("kill worker %d: %w", pid, err)
	}
	<-p.done
	return pid, nil
}

// unexpected returns an error when a process ended that nobody killed.
func (f *fleet) unexpected() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for pid, p := range f.procs {
		select {
		case <-p.done:
			if !p.killed {
				return fmt.Errorf("worker %d ended by itself: %w", pid, errors.Join(p.err, errors.New("see its log")))
			}
		default:
		}
	}
	return nil
}

// stop ends all processes: SIGTERM, and SIGKILL for what is still there after the grace.
func (f *fleet) stop(ctx context.Context, grace time.Duration) {
	f.mu.Lock()
	var live []*proc
	for _, p := range f.procs {
		p.killed = true
		live = append(live, p)
	}
	f.mu.Unlock()
	for _, p := range live {
		_ = p.cmd.Process.Signal(syscall.SIGTERM) // one that is gone already is what we want
	}
	ctx, cancel := context.WithTimeout(ctx, grace)
	defer cancel()
	for _, p := range live {
		select {
		case <-p.done:
		case <-ctx.Done():
			_ = p.cmd.Process.Kill()
		}
	}
	f.wg.Wait()
}
