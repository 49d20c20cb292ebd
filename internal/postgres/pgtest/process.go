package pgtest

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirqueue/weir/internal/postgres"
)

// process is this test process's place in the shared cluster. It is never given up: a test binary has no last moment.
// When it is gone, the server's watcher and the next test process clean up after it.
type process struct {
	server *postgres.Server
	dir    string   // for the files below
	id     string   // in the names of this process's databases
	held   *os.File // dir/id, locked for as long as this process lives
	count  atomic.Int64

	templateMu sync.Mutex
	template   string // made by this process or found, empty: not looked for yet
}

var (
	sharedMu sync.Mutex
	sharedBy *process
)

// shared starts or joins the cluster on first use. A failure is tried again by the next test: it may have been that
// test's deadline.
func shared(ctx context.Context) (*process, error) {
	sharedMu.Lock()
	defer sharedMu.Unlock()
	if sharedBy != nil {
		return sharedBy, nil
	}
	server, err := postgres.Start(ctx, postgres.Options{Name: "test", Settings: map[string]string{
		"checkpoint_timeout": "1h", // a copied database is worth no writing to disk
		"max_wal_size":       "4GB",
		"max_connections":    "500",
	}})
	if err != nil {
		return nil, err
	}
	if err := checkMajor(ctx, server, os.Getenv(MajorVariable)); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	p := newProcess(server)
	if err := p.register(ctx); err != nil {
		return nil, errors.Join(err, server.Close())
	}
	sharedBy = p
	return p, nil
}

// MajorVariable, where it is set, is the major version of PostgreSQL that must serve the tests: whoever runs them on
// several must not be given the same one each time.
const MajorVariable = "WEIR_TEST_PG_MAJOR"

func checkMajor(ctx context.Context, server *postgres.Server, want string) (err error) {
	if want == "" {
		return nil
	}
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	var major string
	if err := conn.QueryRow(ctx, "select (current_setting('server_version_num')::int / 10000)::text").Scan(&major); err != nil {
		return err
	}
	if major != want {
		return fmt.Errorf("%s is %q, but PostgreSQL %s serves", MajorVariable, want, major)
	}
	return nil
}

func newProcess(server *postgres.Server) *process {
	return &process{server: server, dir: filepath.Join(server.Dir(), "tests"), id: strings.ToLower(rand.Text()[:12])}
}

// register makes this process known as alive, and drops the databases of processes that are not.
func (p *process) register(ctx context.Context) error {
	if err := os.MkdirAll(p.dir, 0o700); err != nil {
		return err
	}
	return p.exclusively(ctx, func() (err error) {
		p.held, err = os.OpenFile(filepath.Join(p.dir, p.id), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		if err := syscall.Flock(int(p.held.Fd()), syscall.LOCK_EX); err != nil {
			return err
		}
		return p.dropStale(ctx)
	})
}

// exclusively runs do in one test process at a time.
func (p *process) exclusively(ctx context.Context, do func() error) error {
	file, err := os.OpenFile(filepath.Join(p.dir, "lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	defer file.Close()
	for {
		err := syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
		if err == nil {
			break
		}
		if !errors.Is(err, syscall.EWOULDBLOCK) && !errors.Is(err, syscall.EINTR) {
			return fmt.Errorf("lock %s: %w", file.Name(), err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("wait for the lock %s: %w", file.Name(), ctx.Err())
		case <-time.After(lockPoll):
		}
	}
	// Explicitly, because a child that is being forked keeps a lock that is only closed.
	defer syscall.Flock(int(file.Fd()), syscall.LOCK_UN)
	return do()
}

const lockPoll = 10 * time.Millisecond

const testPrefix = "t_"

func (p *process) dropStale(ctx context.Context) error {
	databases, err := p.databases(ctx, testPrefix)
	if err != nil {
		return err
	}
	ids := map[string]bool{}
	files, err := os.ReadDir(p.dir)
	if err != nil {
		return err
	}
	for _, f := range files {
		ids[f.Name()] = f.Name() != p.id && f.Name() != "lock"
	}
	for _, name := range databases {
		id, _, _ := strings.Cut(strings.TrimPrefix(name, testPrefix), "_")
		ids[id] = id != p.id
	}
	for id, other := range ids {
		if !other || !p.dead(id) {
			continue
		}
		for _, name := range databases {
			if strings.HasPrefix(name, testPrefix+id+"_") {
				if err := p.server.DropDatabase(ctx, name); err != nil {
					return err
				}
			}
		}
		if err := os.Remove(filepath.Join(p.dir, id)); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return nil
}

// dead reports whether the process with this id has ended: the lock on its file ended with it.
func (p *process) dead(id string) bool {
	file, err := os.Open(filepath.Join(p.dir, id))
	if err != nil {
		return errors.Is(err, os.ErrNotExist)
	}
	defer file.Close()
	return syscall.Flock(int(file.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) == nil
}

// databases lists the databases whose names begin with prefix.
func (p *process) databases(ctx context.Context, prefix string) (_ []string, err error) {
	conn, err := pgx.Connect(ctx, p.server.URL("postgres"))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	rows, err := conn.Query(ctx, "select datname from pg_database where starts_with(datname, $1) order by datname", prefix)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

var notInNames = regexp.MustCompile(`[^a-z0-9]+`)

// create makes a database that is named after the test.
func (p *process) create(ctx context.Context, test string, migrated bool) (string, error) {
	name := fmt.Sprintf("%s%s_%d_%s", testPrefix, p.id, p.count.Add(1), notInNames.ReplaceAllString(strings.ToLower(test), "_"))
	name = name[:min(len(name), 63)] // what PostgreSQL keeps of a name
	if !migrated {
		return name, p.server.CreateDatabase(ctx, name)
	}
	for {
		template, err := p.migratedTemplate(ctx)
		if err != nil {
			return "", err
		}
		err = p.server.CopyDatabase(ctx, name, template)
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "3D000" { // somebody dropped the template, or the cluster is a new one
			p.forgetTemplate(template)
			continue
		}
		return name, err
	}
}
