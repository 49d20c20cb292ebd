package receipts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirqueue/weir/internal/fencing"
)

// GroupWait bounds what the statements of a group may make each other wait for.
type GroupWait struct {
	// Statement bounds each one, Lock its wait for a row: the locks of those before it are held meanwhile.
	Statement, Lock time.Duration
}

// GroupError says why a group was refused.
type GroupError struct {
	// At is the step that was refused. Negative: it was the transaction, or the session that a step has changed.
	At int
	// InDoubt: the answer was lost, so all of it may have been committed. Otherwise nothing was.
	InDoubt bool
	Err     error
}

func (e *GroupError) Error() string { return fmt.Sprintf("group of steps, at %d: %v", e.At, e.Err) }
func (e *GroupError) Unwrap() error { return e.Err }

var errSessionChanged = errors.New("a step has changed the session")

// sameSession fails with 22012 where a statement has changed what those after it, and the next user of the connection,
// would have suffered from.
const sameSession = `select 1 / (` + SameSession + `)::int`

// ExecuteMany carries out the statement steps of different runs in one transaction and one round trip, each with its own
// fence and its own receipt. All are committed, or none: whoever is refused takes the others along, and the caller carries
// out each by itself then. It returns what each statement returned, in the order of steps. Every error is a *GroupError.
//
// Statements must be such that they may share a transaction: quick ones, with all their parameters.
func ExecuteMany(ctx context.Context, db Sender, steps []StatementFence, wait GroupWait) ([]json.RawMessage, error) {
	batch := &pgx.Batch{}
	batch.Queue(bound, milliseconds(wait.Statement), milliseconds(wait.Lock))
	for i, f := range steps {
		sql, args, err := f.statement(true)
		if err != nil {
			return nil, &GroupError{At: i, Err: err}
		}
		batch.Queue(sql, args...)
	}
	batch.Queue(sameSession)
	results := db.SendBatch(ctx, batch)
	outs := make([]json.RawMessage, len(steps))
	if _, err := results.Exec(); err != nil {
		return nil, refuseGroup(results, -1, err, err)
	}
	for i, f := range steps {
		var out *string
		if err := results.QueryRow().Scan(&out); err != nil {
			return nil, refuseGroup(results, i, err, f.mapError(err))
		}
		outs[i] = rawJSON(out)
	}
	if _, err := results.Exec(); err != nil {
		meant := err
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && pgErr.Code == "22012" {
			meant = errSessionChanged
		}
		return nil, refuseGroup(results, -1, err, meant)
	}
	if err := results.Close(); err != nil { // it commits here
		return nil, refuseGroup(results, -1, err, err)
	}
	return outs, nil
}

// refuseGroup ends a group for which PostgreSQL, or nobody, has answered err.
func refuseGroup(results pgx.BatchResults, at int, err, meant error) error {
	_ = results.Close() // it says the same again
	var unformed pgx.ErrPreprocessingBatch
	return &GroupError{At: at, InDoubt: fencing.OutcomeOf(err) == fencing.Unknown && !errors.As(err, &unformed), Err: meant}
}
