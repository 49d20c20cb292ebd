package jobs

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

// Three statements, and each sees what committed before it: under READ COMMITTED none raises a conflict. DO UPDATE
// would lock, and keep locked, rows that it leaves alone.
var (
	insertKey = fencing.Compile("insert key", `
insert into weir.key (kind, key, run_id, digest) values (@kind, @key, @run::uuid, @digest::text::bytea)
on conflict (kind, key) do nothing returning true`)
	takeExpiredKey = fencing.Compile("take expired key", `
with expired as (
    select kind, key from weir.key where kind = @kind and key = @key and expires_at < clock_timestamp() for update
)
update weir.key k set run_id = @run::uuid, digest = @digest::text::bytea, outcome = null, expires_at = null
from expired e where k.kind = e.kind and k.key = e.key and k.expires_at < clock_timestamp() returning true`)
	readKey = fencing.Compile("read key", `
select run_id, digest, outcome::text, expires_at < clock_timestamp() from weir.key where kind = @kind and key = @key`)
)

type keyRequest struct {
	kind, key string
	run       uuid.UUID
	digest    []byte
}

// takenKey is a key that stands for something that exists, or existed.
type takenKey struct {
	run     uuid.UUID
	outcome []RunRef
}

// keyRounds bounds the loop: a round is lost only when a key's owner rolls back, or a key expires or is deleted, in
// between two statements.
const keyRounds = 10

// takeKey makes the key stand for req.run and returns nil, or says what it stands for. It may wait for a transaction
// that has just taken the same key.
func takeKey(ctx context.Context, tx pgx.Tx, req keyRequest) (*takenKey, error) {
	args := fencing.Args{"kind": req.kind, "key": req.key, "run": req.run.String(), "digest": fmt.Sprintf(`\x%x`, req.digest)}
	for range keyRounds {
		for _, stmt := range []*fencing.Statement{insertKey, takeExpiredKey} {
			var mine bool
			err := tx.QueryRow(ctx, stmt.SQL, stmt.Bind(args)...).Scan(&mine)
			if err == nil {
				return nil, nil
			}
			if !errors.Is(err, pgx.ErrNoRows) {
				return nil, fmt.Errorf("jobs: %s: %w", stmt.Name, err)
			}
		}
		var (
			k       takenKey
			digest  []byte
			outcome *string
			expired *bool
		)
		err := tx.QueryRow(ctx, readKey.SQL, readKey.Bind(args)...).Scan(&k.run, &digest, &outcome, &expired)
		switch {
		case errors.Is(err, pgx.ErrNoRows), err == nil && expired != nil && *expired:
			continue
		case err != nil:
			return nil, fmt.Errorf("jobs: %s: %w", readKey.Name, err)
		case !bytes.Equal(digest, req.digest):
			return nil, &KeyReusedError{Kind: req.kind, Key: req.key, Run: RunID(k.run)}
		}
		k.outcome, err = decodeOutcome(outcome)
		return &k, err
	}
	return nil, fmt.Errorf("jobs: idempotency key %q is taken and given up by others faster than it can be read; try again", req.key)
}
