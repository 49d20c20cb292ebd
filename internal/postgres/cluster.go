package postgres

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// maxSocketPath keeps the socket's path below what every system takes (103 bytes on macOS, 107 on Linux).
const maxSocketPath = 100

// cluster is a PostgreSQL data directory with what belongs to it:
//
//	data/      what initdb made
//	socket/    the server's socket, the only way in
//	log        what the server of now says; log.1 is the one before
//	weir.conf  our settings, included by data/postgresql.conf
//	gate       lock: held exclusively by whoever starts or stops the server, or joins or leaves it
//	users      lock: shared by everybody who uses the server; asked for exclusively, under the gate, to know that nobody does
//	alive      lock: shared like users; the watcher waits for it outside the gate
//	watch      lock: held by the watcher, so that there is one
type cluster struct {
	dir      string
	socket   string
	bin      binaries
	as       account
	durable  bool
	settings map[string]string
	env      []string
}

func (c *cluster) path(name string) string { return filepath.Join(c.dir, name) }
func (c *cluster) data() string            { return c.path("data") }

// prepare makes the directories that the server needs before it has any data.
func (c *cluster) prepare() error {
	if err := c.as.mkdir(c.dir); err != nil {
		return err
	}
	c.socket = c.path("socket")
	if len(filepath.Join(c.socket, socketName)) >= maxSocketPath {
		sum := sha256.Sum256([]byte(c.dir))
		c.socket = filepath.Join("/tmp", fmt.Sprintf("weir-%d-%s", c.as.uid, hex.EncodeToString(sum[:6])))
	}
	return c.as.mkdir(c.socket)
}

// initialize makes the data directory unless it is there. It works in a directory of another name and renames it at the
// end, so that a half-made one is never taken for a whole one.
func (c *cluster) initialize(ctx context.Context) error {
	leftovers, _ := filepath.Glob(c.path("data.new*"))
	for _, dir := range leftovers {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(c.data(), "PG_VERSION")); err == nil {
		return nil
	}
	// A name of its own: an initdb whose caller was killed may still be writing into the last one.
	dir, err := os.MkdirTemp(c.dir, "data.new")
	if err != nil {
		return err
	}
	if err := c.as.own(dir); err != nil {
		return err
	}
	args := []string{"-D", dir, "-A", "trust", "-U", superuser, "-E", "UTF8", "--locale=" + locale(), "--no-instructions"}
	if !c.durable {
		args = append(args, "--no-sync")
	}
	if out, err := c.as.command(ctx, c.bin.path("initdb"), args...).CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, lastLines(out))
	}
	conf, err := os.OpenFile(filepath.Join(dir, "postgresql.conf"), os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(conf, "\ninclude = '../%s'\n", confName)
	if err := errors.Join(err, conf.Close()); err != nil {
		return err
	}
	if err := os.RemoveAll(c.data()); err != nil {
		return err
	}
	return os.Rename(dir, c.data())
}

// locale sorts the same on every machine.
func locale() string {
	if _, err := os.Stat("/System/Library"); err == nil {
		return "C" // macOS has no C.UTF-8
	}
	return "C.UTF-8"
}

const confName = "weir.conf"

// configure writes the settings that the next start reads.
func (c *cluster) configure() error {
	settings := map[string]string{
		"listen_addresses":        "",
		"unix_socket_directories": `"` + strings.ReplaceAll(c.socket, `"`, `""`) + `"`,
		"port":                    port,
		"max_connections":         "300",
		"log_line_prefix":         "%m [%p] %d ",
		"log_timezone":            "UTC",
		"timezone":                "UTC",
	}
	if !c.durable {
		maps.Copy(settings, map[string]string{
			"fsync":              "off",
			"synchronous_commit": "off",
			"full_page_writes":   "off",
		})
	}
	maps.Copy(settings, c.settings)

	var conf strings.Builder
	for _, name := range slices.Sorted(maps.Keys(settings)) {
		fmt.Fprintf(&conf, "%s = '%s'\n", name, strings.ReplaceAll(settings[name], "'", "''"))
	}
	path := c.path(confName)
	if err := os.WriteFile(path, []byte(conf.String()), 0o600); err != nil {
		return err
	}
	return c.as.own(path)
}

// ensure makes the server run and answer. The caller holds the gate.
func (c *cluster) ensure(ctx context.Context) error {
	for rebuilt := false; ; {
		state, err := c.await(ctx)
		if err != nil || state == ready {
			return err
		}
		err = c.start(ctx)
		if err == nil || ctx.Err() != nil {
			return err
		}
		// Without fsync a crash of the machine may leave data that no server starts on. It was never promised to last.
		if c.durable || rebuilt {
			return err
		}
		rebuilt = true
		if err := os.RemoveAll(c.data()); err != nil {
			return err
		}
	}
}

// start starts a server that is known to be down.
func (c *cluster) start(ctx context.Context) error {
	if err := c.initialize(ctx); err != nil {
		return err
	}
	if err := c.clearRemains(ctx); err != nil {
		return err
	}
	if err := c.configure(); err != nil {
		return err
	}
	log := c.path("log")
	if err := os.Rename(log, log+".1"); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	// Without -l the server would inherit our pipe, and reading pg_ctl's output would last as long as the server.
	cmd := c.as.command(ctx, c.bin.path("pg_ctl"), "start", "-w", "-s", "-t", seconds(startTimeout), "-D", c.data(), "-l", log)
	if len(c.env) > 0 {
		cmd.Env = append(cmd.Environ(), c.env...)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		said, _ := os.ReadFile(log)
		return fmt.Errorf("pg_ctl start: %w: %s", err, lastLines(append(out, said...)))
	}
	return nil
}

// stop stops the server and waits until it is gone. A server that is not running is no error.
func (c *cluster) stop(ctx context.Context, mode StopMode) error {
	pid := c.postmaster()
	if pid == 0 {
		return nil
	}
	cmd := c.as.command(ctx, c.bin.path("pg_ctl"), "stop", "-w", "-s", "-t", seconds(stopTimeout), "-m", string(mode), "-D", c.data())
	if out, err := cmd.CombinedOutput(); err != nil && c.postmaster() == pid {
		return fmt.Errorf("pg_ctl stop: %w: %s", err, lastLines(out))
	}
	// pg_ctl waits for the file with the process number to go, which is a moment before the process does.
	for worksIn(pid, c.data()) {
		if err := pause(ctx, lockPoll); err != nil {
			return fmt.Errorf("wait for the end of PostgreSQL: %w", err)
		}
	}
	return nil
}

// clearRemains prepares the directory of a server that is down for the next start. PostgreSQL itself copes with the
// files of a dead server, but for two cases: a process that outlived its server and still has the shared memory, and a
// process of another program that was given the dead server's number.
func (c *cluster) clearRemains(ctx context.Context) error {
	for {
		pids := processesIn(c.data())
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
				return fmt.Errorf("end process %d, left over from a server that is gone: %w", pid, err)
			}
		}
		if err := pause(ctx, lockPoll); err != nil {
			return err
		}
	}
	if !canSeeProcesses() {
		return nil // then it is PostgreSQL's to decide
	}
	remains, _ := filepath.Glob(filepath.Join(c.socket, ".s.PGSQL.*"))
	for _, path := range append(remains, c.pidFile()) {
		if err := os.Remove(path); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// lastLines keeps of a program's output what fits in an error.
func lastLines(out []byte) string {
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return strings.Join(lines[max(0, len(lines)-8):], "\n")
}
