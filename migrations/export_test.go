package migrations

import (
	"context"

	"github.com/jackc/pgx/v5/pgxpool"
)

const LockKey = lockKey

// Locked runs do as a migration would run.
func Locked(ctx context.Context, url string, do func(context.Context, *pgxpool.Pool) error) error {
	return locked(ctx, url, Options{}, func(ctx context.Context, s *session) error { return do(ctx, s.pool) })
}
