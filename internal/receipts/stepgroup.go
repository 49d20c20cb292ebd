package receipts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirqueue/weir/internal/fencing"
)

// GroupWait bounds what the statements of a group may make each other wait for.
type GroupWait struct {
	// Statement bounds each one, Lock its wait for a row: the locks of those before it are held meanwhile.
	Statement, Lock time.Duration
	// Prepare bounds how long a connection may take to prepare them, which waits for who alters a table.
	Prepare time.Duration
	// Group bounds what all of them may take together: an equal share is each one's bound, where that is less.
	Group time.Duration
}

func (w GroupWait) args(steps int) []any {
	share := w.Group / time.Duration(max(steps, 1))
	return []any{milliseconds(min(w.Statement, share)), milliseconds(min(w.Lock, share/2))}
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
	batch.Queue(bound, wait.args(len(steps))...)
	texts := make([]string, len(steps))
	for i, f := range steps {
		sql, args, err := f.statement(true)
		if err != nil {
			return nil, &GroupError{At: i, Err: err}
		}
		batch.Queue(sql, args...)
		texts[i] = sql
	}
	batch.Queue(sameSession)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	results, err := send(ctx, cancel, db, batch, wait.Prepare)
	if err != nil {
		return nil, &GroupError{At: -1, Err: err}
	}
	outs := make([]json.RawMessage, len(steps))
	if _, err := results.Exec(); err != nil {
		at := -1
		var unformed pgx.ErrPreprocessingBatch
		if errors.As(err, &unformed) {
			at = slices.Index(texts, unformed.SQL()) // some step of this text: it is the text that is kept alone
		}
		return nil, refuseGroup(results, at, err, err)
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

// send prepares what the connection does not know yet, and sends the batch. A panic is an argument's: values are asked for
// before anything can be committed, and whoever holds the connection finds it busy, so that it is not used again.
func send(ctx context.Context, cancel context.CancelFunc, db Sender, batch *pgx.Batch, wait time.Duration) (results pgx.BatchResults, err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v\n%s", p, debug.Stack())
		}
	}()
	// The server's bounds are set by the batch itself.
	defer time.AfterFunc(wait, cancel).Stop()
	return db.SendBatch(ctx, batch), nil
}

// refuseGroup ends a group for which PostgreSQL, or nobody, has answered err.
func refuseGroup(results pgx.BatchResults, at int, err, meant error) error {
	_ = results.Close() // it says the same again
	var unformed pgx.ErrPreprocessingBatch
	return &GroupError{At: at, InDoubt: fencing.OutcomeOf(err) == fencing.Unknown && !errors.As(err, &unformed), Err: meant}
}
