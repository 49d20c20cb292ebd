package fencing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Raising the own attempt waits for the transaction that is in doubt, and makes it fail if it has not committed: its
// fence names the old attempt. The row's lock is what waits, so it is taken before anything is read.
var raise = Compile("raise", `
with locked as (
    select id from weir.run
    where id = @run and attempt = @attempt::bigint and status in (`+literals(ownable())+`) and lease_expires_at is not null
    for no key update
)
update weir.run r set attempt = r.attempt + 1, lease_expires_at = clock_timestamp() + @lease::interval
from locked where r.id = locked.id returning r.attempt`)

var lookBack = Compile("look back", `select attempt, finished_at is not null from weir.run where id = @run`)

// Verdict on a COMMIT whose answer was lost.
type Verdict int

const (
	// StillOwner: the run is ours under the new attempt. Whether the step committed is in its receipt.
	StillOwner Verdict = iota
	// Finished: the terminal write committed.
	Finished
	// Lost: somebody took the run away.
	Lost
)

// ResolveDoubt finds out what an unknown COMMIT did (R10, F12). It must run on a connection other than the one that
// failed. The caller has told the keeper to skip the run, and swaps the token when the verdict is StillOwner; it reads
// the receipt afterwards, in a statement of its own, so that its snapshot is newer than the lock.
//
// db must not be a transaction: the raised attempt has to be committed.
func ResolveDoubt(ctx context.Context, db DB, run uuid.UUID, attempt int64, lease time.Duration) (Verdict, int64, error) {
	var raised int64
	err := db.QueryRow(ctx, raise.SQL, raise.Bind(Args{"run": run, "attempt": attempt, "lease": lease})...).Scan(&raised)
	if err == nil {
		return StillOwner, raised, nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return Lost, 0, fmt.Errorf("resolve unknown commit of run %s: %w", run, err)
	}
	var (
		now      int64
		terminal bool
	)
	err = db.QueryRow(ctx, lookBack.SQL, lookBack.Bind(Args{"run": run})...).Scan(&now, &terminal)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return Lost, 0, nil
	case err != nil:
		return Lost, 0, fmt.Errorf("resolve unknown commit of run %s: %w", run, err)
	case terminal && now == attempt:
		return Finished, now, nil
	default:
		return Lost, 0, nil
	}
}
