package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// state is what a look at a cluster's server tells.
type state int

const (
	// down: no server process. Nobody but the holder of the gate will start one.
	down state = iota
	// changing: a server process that does not take connections yet, or no longer.
	changing
	// ready: it takes connections.
	ready
)

// await waits until the server is either ready or down.
func (c *cluster) await(ctx context.Context) (state, error) {
	for {
		s, err := c.look(ctx)
		if s != changing {
			return s, nil
		}
		if pauseErr := pause(ctx, 2*lockPoll); pauseErr != nil {
			return s, fmt.Errorf("wait for PostgreSQL in %s: %w (%w)", c.dir, pauseErr, err)
		}
	}
}

// look asks the server itself first: a process number in a file proves little.
func (c *cluster) look(ctx context.Context) (state, error) {
	dial, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	conn, err := pgconn.Connect(dial, c.url("postgres"))
	if err == nil {
		_ = conn.Close(dial) // the question is answered
		return ready, nil
	}
	var refused *pgconn.PgError
	if errors.As(err, &refused) {
		if refused.Code == "57P03" { // cannot_connect_now: starting up, shutting down, or in recovery
			return changing, err
		}
		return ready, nil // it speaks, and what it says (too many connections, say) is for the caller to hear
	}
	if c.postmaster() != 0 {
		return changing, err
	}
	return down, err
}

func (c *cluster) pidFile() string { return filepath.Join(c.data(), "postmaster.pid") }

// postmaster is the process number of the server, 0 when it is not running.
func (c *cluster) postmaster() int {
	content, err := os.ReadFile(c.pidFile())
	if err != nil {
		return 0
	}
	first, _, _ := strings.Cut(string(content), "\n")
	pid, err := strconv.Atoi(strings.TrimSpace(first))
	if err != nil || pid <= 0 || !worksIn(pid, c.data()) {
		return 0
	}
	return pid
}

// canSeeProcesses reports whether this system shows the working directories of processes.
func canSeeProcesses() bool {
	_, err := os.Readlink("/proc/self/cwd")
	return err == nil
}

// worksIn reports whether the process lives and is one of the server with the data directory dir: PostgreSQL's processes
// all work in theirs. Where that cannot be seen, living is enough.
func worksIn(pid int, dir string) bool {
	if !canSeeProcesses() {
		err := syscall.Kill(pid, 0)
		return err == nil || errors.Is(err, syscall.EPERM)
	}
	proc := filepath.Join("/proc", strconv.Itoa(pid))
	cwd, err := os.Readlink(filepath.Join(proc, "cwd"))
	if err != nil || cwd != dir {
		return false
	}
	program, err := os.ReadFile(filepath.Join(proc, "comm")) // it may be somebody's shell that looks around there
	return err == nil && strings.TrimSpace(string(program)) == "postgres"
}

// processesIn lists the server processes that work in dir, as far as this system shows them.
func processesIn(dir string) []int {
	if !canSeeProcesses() {
		return nil
	}
	entries, _ := os.ReadDir("/proc")
	var pids []int
	for _, e := range entries {
		if pid, err := strconv.Atoi(e.Name()); err == nil && worksIn(pid, dir) {
			pids = append(pids, pid)
		}
	}
	return pids
}
