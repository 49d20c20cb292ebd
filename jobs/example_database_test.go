package jobs_test

import (
	"context"
	"crypto/rand"
	"errors"
	"strings"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/postgres"
	"github.com/weirqueue/weir/migrations"
)

// exampleDatabase makes a migrated database for an example, which has no test to belong to.
func exampleDatabase(ctx context.Context) (pool *pgxpool.Pool, drop func()) {
	server, err := postgres.Start(ctx, postgres.Options{Name: "test"})
	if err != nil {
		panic(err)
	}
	name := "example_" + strings.ToLower(rand.Text()[:12])
	if err := server.CreateDatabase(ctx, name); err != nil {
		panic(err)
	}
	if err := migrations.Up(ctx, server.URL(name), migrations.Options{}); err != nil {
		panic(err)
	}
	if pool, err = pgxpool.New(ctx, server.URL(name)); err != nil {
		panic(err)
	}
	return pool, func() {
		pool.Close()
		if err := errors.Join(server.DropDatabase(ctx, name), server.Close()); err != nil {
			panic(err)
		}
	}
}
