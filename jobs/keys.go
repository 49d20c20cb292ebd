package jobs

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

// Three statements, and each sees what committed before it: under READ COMMITTED none raises a conflict. DO UPDATE
// would lock, and keep locked, rows that it leaves alone. All keys are taken in their order (R12).
var (
	insertKeys = fencing.Compile("insert keys", `
insert into weir.key (kind, key, run_id, digest)
select a.kind, a.key, a.run::uuid, a.digest::bytea
from unnest(@kinds::text[], @keys::text[], @runs::text[], @digests::text[]) a(kind, key, run, digest)
order by a.kind, a.key
on conflict (kind, key) do nothing returning run_id`)
	takeExpiredKeys = fencing.Compile("take expired keys", `
with expired as (
    select k.kind, k.key, a.run, a.digest
    from unnest(@kinds::text[], @keys::text[], @runs::text[], @digests::text[]) a(kind, key, run, digest)
    join weir.key k on k.kind = a.kind and k.key = a.key
    where k.expires_at < clock_timestamp() order by k.kind, k.key for update of k
)
update weir.key k set run_id = e.run::uuid, digest = e.digest::bytea, outcome = null, expires_at = null
from expired e where k.kind = e.kind and k.key = e.key and k.expires_at < clock_timestamp() returning k.run_id`)
	readKeys = fencing.Compile("read keys", `
select k.kind, k.key, k.run_id, k.digest, k.outcome::text
from unnest(@kinds::text[], @keys::text[]) a(kind, key) join weir.key k on k.kind = a.kind and k.key = a.key
where k.expires_at is null or k.expires_at >= clock_timestamp()`)
	giveBackKeys = fencing.Compile("give back keys", `
delete from weir.key k using unnest(@kinds::text[], @keys::text[], @runs::text[]) a(kind, key, run)
where k.kind = a.kind and k.key = a.key and k.run_id = a.run::uuid and k.expires_at is null`)
)

type keyRequest struct {
	kind, key string
	run       uuid.UUID
	digest    []byte
}

// keyRounds bounds the loop: a round is lost only when a key's owner rolls back, or a key expires or is deleted, in
// between two statements.
const keyRounds = 10

// foundKey is a key that stands for something that exists, or existed.
type foundKey struct {
	run     uuid.UUID
	digest  []byte
	outcome []RunRef
	// reused: it stands for another payload.
	reused bool
}

// takeKeys makes each key stand for its run, or says what it stands for, by the index of the request. The keys must
// differ from each other. It may wait for a transaction that has just taken one of them.
func takeKeys(ctx context.Context, tx pgx.Tx, reqs []keyRequest) (map[int]*foundKey, error) {
	taken := map[int]*foundKey{}
	open := make([]int, len(reqs))
	for i := range reqs {
		open[i] = i
	}
	slices.SortFunc(open, func(a, b int) int {
		return strings.Compare(reqs[a].kind+"\x00"+reqs[a].key, reqs[b].kind+"\x00"+reqs[b].key)
	})
	for round := 0; len(open) > 0; round++ {
		if round == keyRounds {
			return nil, fmt.Errorf("jobs: idempotency key %q is taken and given up by others faster than it can be read; try again", reqs[open[0]].key)
		}
		args := keyArgs(reqs, open)
		for _, stmt := range []*fencing.Statement{insertKeys, takeExpiredKeys} {
			mine, err := queryIDs(ctx, tx, stmt, args)
			if err != nil {
				return nil, err
			}
			open = slices.DeleteFunc(open, func(i int) bool { return mine[reqs[i].run] })
			if len(open) == 0 {
				return taken, nil
			}
			args = keyArgs(reqs, open)
		}
		found, err := lookUpKeys(ctx, tx, args)
		if err != nil {
			return nil, err
		}
		open = slices.DeleteFunc(open, func(i int) bool {
			f, ok := found[[2]string{reqs[i].kind, reqs[i].key}]
			if ok {
				f.reused = !bytes.Equal(f.digest, reqs[i].digest)
				taken[i] = f
			}
			return ok
		})
	}
	return taken, nil
}

func keyArgs(reqs []keyRequest, which []int) fencing.Args {
	n := len(which)
	kinds, keys, runs, digests := make([]string, n), make([]string, n), make([]string, n), make([]string, n)
	for at, i := range which {
		kinds[at], keys[at], runs[at], digests[at] = reqs[i].kind, reqs[i].key, reqs[i].run.String(), fmt.Sprintf(`\x%x`, reqs[i].digest)
	}
	return fencing.Args{"kinds": kinds, "keys": keys, "runs": runs, "digests": digests}
}

func queryIDs(ctx context.Context, tx pgx.Tx, stmt *fencing.Statement, args fencing.Args) (map[uuid.UUID]bool, error) {
	rows, err := tx.Query(ctx, stmt.SQL, stmt.Bind(args)...)
	if err != nil {
		return nil, fmt.Errorf("jobs: %s: %w", stmt.Name, err)
	}
	ids := map[uuid.UUID]bool{}
	var id uuid.UUID
	if _, err := pgx.ForEachRow(rows, []any{&id}, func() error { ids[id] = true; return nil }); err != nil {
		return nil, fmt.Errorf("jobs: %s: %w", stmt.Name, err)
	}
	return ids, nil
}

func lookUpKeys(ctx context.Context, tx pgx.Tx, args fencing.Args) (map[[2]string]*foundKey, error) {
	rows, err := tx.Query(ctx, readKeys.SQL, readKeys.Bind(args)...)
	if err != nil {
		return nil, fmt.Errorf("jobs: %s: %w", readKeys.Name, err)
	}
	found := map[[2]string]*foundKey{}
	var (
		kind, key string
		run       uuid.UUID
		digest    []byte
		outcome   *string
	)
	if _, err := pgx.ForEachRow(rows, []any{&kind, &key, &run, &digest, &outcome}, func() error {
		refs, err := decodeOutcome(outcome)
		found[[2]string{kind, key}] = &foundKey{run: run, outcome: refs, digest: bytes.Clone(digest)}
		return err
	}); err != nil {
		return nil, fmt.Errorf("jobs: %s: %w", readKeys.Name, err)
	}
	return found, nil
}

// giveBack removes keys that were taken in this transaction for runs that were not made after all.
func giveBack(ctx context.Context, tx pgx.Tx, reqs []keyRequest) error {
	if len(reqs) == 0 {
		return nil
	}
	all := make([]int, len(reqs))
	for i := range reqs {
		all[i] = i
	}
	if _, err := tx.Exec(ctx, giveBackKeys.SQL, giveBackKeys.Bind(keyArgs(reqs, all))...); err != nil {
		return fmt.Errorf("jobs: %s: %w", giveBackKeys.Name, err)
	}
	return nil
}
