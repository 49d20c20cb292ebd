// Package postgres runs a private PostgreSQL for the demo, the drill and the tests: nothing to set up, no port, no
// password, nothing of the machine's own servers touched.
//
// A cluster has a name, and every process that starts it by that name shares one server. The last one out stops it,
// also when it did not leave by [Server.Close] but was killed. Whoever finds the server crashed, or its starter dead in
// the middle of a start, puts it right and goes on.
package postgres

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"
)

const (
	superuser  = "postgres"
	port       = "5432" // names the socket; nothing listens on the network
	socketName = ".s.PGSQL." + port

	startTimeout = 60 * time.Second
	stopTimeout  = 60 * time.Second
)

func seconds(d time.Duration) string { return strconv.Itoa(int(d.Seconds())) }

// ErrClosed is returned by the methods of a Server after its Close.
var ErrClosed = errors.New("postgres: this share of the server is closed")

// StopMode is how a server is stopped.
type StopMode string

const (
	// Fast ends all sessions and shuts down in order.
	Fast StopMode = "fast"
	// Immediate is a crash of the server: sessions are cut, and the next start recovers.
	Immediate StopMode = "immediate"
)

// Server is one process's share in a running server. It is safe for concurrent use. It must not be dropped without
// Close as long as the server is needed: the share ends with it.
type Server struct {
	cluster   *cluster
	ephemeral bool
	gate      *lock
	users     *lock
	alive     *lock

	mu     sync.Mutex // one caller of this share at the gate; guards closed
	closed bool
}

// Start joins the running server of a cluster, or starts it; the cluster is made when there is none yet (about 1 s).
// PostgreSQL's programs are looked for in the directory that the environment variable PG_BIN names, then on the PATH,
// then where distributions put them; when there are none, the error is an [ErrNoBinaries]. For root they run as the user
// postgres, or nobody.
//
// A start takes at most 60 s, or as long as ctx. The server outlives ctx.
func Start(ctx context.Context, opts Options) (*Server, error) {
	if err := opts.validate(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()

	c, err := open(ctx, opts)
	if err != nil {
		return nil, ended(ctx, err)
	}
	s, err := join(ctx, c, opts.Ephemeral)
	if err != nil {
		if opts.Ephemeral {
			err = errors.Join(err, c.stop(context.WithoutCancel(ctx), Immediate), os.RemoveAll(c.dir))
		}
		return nil, fmt.Errorf("start PostgreSQL %d in %s: %w", c.bin.major, c.dir, ended(ctx, err))
	}
	return s, nil
}

// ended says that it was the context that ended a program, whose own error is only that it was killed.
func ended(ctx context.Context, err error) error {
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, cause) {
		return fmt.Errorf("%w: %w", cause, err)
	}
	return err
}

// open finds out where the cluster is and with which programs and as which user its server runs.
func open(ctx context.Context, opts Options) (*cluster, error) {
	as, err := serverAccount()
	if err != nil {
		return nil, err
	}
	dir, err := findBinaries(os.Getenv, packageDirs)
	if err != nil {
		return nil, err
	}
	bin, err := inspect(ctx, dir, as)
	if err != nil {
		return nil, err
	}
	home, err := as.home()
	if err != nil {
		return nil, err
	}
	// Processes are recognized by their working directory, which has no symbolic links in it.
	if home, err = filepath.EvalSymlinks(home); err != nil {
		return nil, err
	}
	c := &cluster{bin: bin, as: as, durable: opts.Durable, settings: opts.Settings, env: opts.Env}
	if opts.Ephemeral {
		removeStale(ctx, home, as)
		c.dir, err = os.MkdirTemp(home, ephemeralPrefix)
		return c, err
	}
	// By major version, because no version opens the directory of another.
	c.dir = filepath.Join(home, opts.Name+"-"+strconv.Itoa(bin.major))
	return c, nil
}

func join(ctx context.Context, c *cluster, ephemeral bool) (_ *Server, err error) {
	if err := c.prepare(); err != nil {
		return nil, err
	}
	s := &Server{cluster: c, ephemeral: ephemeral}
	for name, l := range map[string]**lock{"gate": &s.gate, "users": &s.users, "alive": &s.alive} {
		if *l, err = openLock(c.path(name), c.as); err != nil {
			return nil, err
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, (*l).release())
			}
		}()
	}
	if err := s.gate.take(ctx, syscall.LOCK_EX); err != nil {
		return nil, err
	}
	defer func() {
		if err == nil {
			err = s.gate.unlock()
		}
	}()
	for _, l := range []*lock{s.users, s.alive} {
		if err := l.take(ctx, syscall.LOCK_SH); err != nil {
			return nil, err
		}
	}
	// The watcher comes first: a starter that is killed leaves nothing behind.
	if err := c.watch(ctx, ephemeral); err != nil {
		return nil, err
	}
	return s, c.ensure(ctx)
}

// URL is the address of a database of the server, for the superuser. pgx, psql and River take it.
func (s *Server) URL(database string) string { return s.cluster.url(database) }

func (c *cluster) url(database string) string {
	u := url.URL{
		Scheme: "postgres",
		User:   url.User(superuser),
		Path:   "/" + database,
		RawQuery: url.Values{
			"host":    {c.socket},
			"port":    {port},
			"sslmode": {"disable"},
		}.Encode(),
	}
	return u.String()
}

// Major is the major version of the server's PostgreSQL.
func (s *Server) Major() int { return s.cluster.bin.major }

// Dir is the cluster's directory: a place for files that belong to it.
func (s *Server) Dir() string { return s.cluster.dir }

// LogFile is the path of what the server writes about itself.
func (s *Server) LogFile() string { return s.cluster.path("log") }

// PID is the process number of the server's first process, 0 while it is not running. A signal to it is a fault that
// tests can make.
func (s *Server) PID() int { return s.cluster.postmaster() }

// Stop stops the server for everybody who shares it: an outage, until Restart or the next Start. A server that is down
// is no error.
func (s *Server) Stop(ctx context.Context, mode StopMode) error {
	return s.atGate(ctx, func() error { return s.cluster.stop(ctx, mode) })
}

// Restart stops the server if it runs, for everybody who shares it, and starts it.
func (s *Server) Restart(ctx context.Context, mode StopMode) error {
	return s.atGate(ctx, func() error {
		if err := s.cluster.stop(ctx, mode); err != nil {
			return err
		}
		ctx, cancel := context.WithTimeout(ctx, startTimeout)
		defer cancel()
		return s.cluster.ensure(ctx)
	})
}

// Close gives this share up. The last one stops the server (fast) and waits for that; an ephemeral cluster is removed.
// Further calls do nothing.
func (s *Server) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout+stopTimeout)
	defer cancel()

	err := s.atGate(ctx, func() error {
		s.closed = true
		return s.leave(ctx)
	})
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return errors.Join(err, s.gate.file.Close())
}

// leave decides under the gate whether this share is the last.
func (s *Server) leave(ctx context.Context) (err error) {
	// Last of all, so that the watcher wakes up to find nothing left to do.
	defer func() { err = errors.Join(err, s.alive.release()) }()

	alone, err := s.users.try(syscall.LOCK_EX)
	if err == nil && alone {
		if s.ephemeral {
			err = errors.Join(s.cluster.stop(ctx, Immediate), os.RemoveAll(s.cluster.dir))
		} else {
			err = s.cluster.stop(ctx, Fast)
		}
	}
	return errors.Join(err, s.users.release())
}

func (s *Server) atGate(ctx context.Context, do func() error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return ErrClosed
	}
	if err := s.gate.take(ctx, syscall.LOCK_EX); err != nil {
		return err
	}
	return errors.Join(do(), s.gate.unlock())
}
