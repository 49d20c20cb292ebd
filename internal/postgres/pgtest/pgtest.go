// Package pgtest gives tests real PostgreSQL databases.
//
// All test processes share one server, which the first one starts and which stops after the last one. Each test has a
// database of its own, copied from one that is migrated already, so tests may run in parallel. A test fails, and is not
// skipped, on a machine without PostgreSQL.
package pgtest

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/postgres"
)

// URL is the address of a fresh database with River's and Weir's tables in it. It is dropped after the test.
func URL(t testing.TB) string {
	t.Helper()
	return fresh(t, true)
}

// Empty is the address of a fresh database with nothing in it. It is dropped after the test.
func Empty(t testing.TB) string {
	t.Helper()
	return fresh(t, false)
}

// Pool connects to a fresh database with River's and Weir's tables in it. The pool is closed and the database dropped
// after the test.
func Pool(t testing.TB, opts ...Option) *pgxpool.Pool {
	t.Helper()
	return Connect(t, URL(t), opts...)
}

// Connect makes one more pool, for a database that a test has already. It is closed after the test, which fails if it
// still uses a connection then.
func Connect(t testing.TB, url string, opts ...Option) *pgxpool.Pool {
	t.Helper()
	config, err := pgxpool.ParseConfig(url)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	config.MaxConns = 10
	for _, opt := range opts {
		opt(config)
	}
	pool, err := pgxpool.NewWithConfig(t.Context(), config)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		closed := make(chan struct{})
		go func() {
			defer close(closed)
			pool.Close()
		}()
		select {
		case <-closed:
		case <-time.After(5 * time.Second):
			t.Errorf("pgtest: %d connections of the pool are still in use after the test", pool.Stat().AcquiredConns())
		}
	})
	return pool
}

// Option changes the pool that a test gets.
type Option func(*pgxpool.Config)

// MaxConns is how many connections the pool may open. Defaults to 10; the server has 500 for all tests together.
func MaxConns(n int32) Option {
	return func(c *pgxpool.Config) { c.MaxConns = n }
}

// Config lets a test change anything about the pool.
func Config(change func(*pgxpool.Config)) Option { return change }

// Cluster is a server of the test's own, for tests that restart, stop or kill it. It has no databases yet but postgres.
// It is removed after the test. It takes a second or two: tests that leave the server alone use the others.
func Cluster(t testing.TB) *postgres.Server {
	t.Helper()
	s, err := postgres.Start(t.Context(), postgres.Options{Ephemeral: true})
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return s
}

func fresh(t testing.TB, migrated bool) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	p, err := shared(ctx)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	name, err := p.create(ctx, t.Name(), migrated)
	if err != nil {
		t.Fatalf("pgtest: %v", err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
		defer cancel()
		if err := p.server.DropDatabase(ctx, name); err != nil {
			t.Errorf("pgtest: %v", err)
		}
	})
	return p.server.URL(name)
}
