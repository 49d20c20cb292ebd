package workers

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/receipts"
)

// Statements of the batch that ends a live step. They are prepared before the step's own SQL runs: parsed later, they
// would be parsed under whatever role it has set.
const (
	// markTx notes, for the transaction alone, what its end looks at: the token, and how the session is before the step.
	markTx = `select set_config('weir.token', $1, true), set_config('idle_in_transaction_session_timeout', $2, true),
    set_config('statement_timeout', $2, true), set_config('weir.role', current_setting('role'), true),
    set_config('weir.path', current_setting('search_path'), true), ` + receipts.NoteSession
	// proveTx says whether the session is as it was, and goes back to the role that the pool's connection had. It fails with
	// 22012 after a smuggled COMMIT: the token was local to the transaction that is gone. The fence then resolves its names as
	// the pool's connections do, whatever the step has set (another path for each would have PostgreSQL plan anew each time), and
	// waits for a lock less long than a statement may take. One statement: each costs a live step as much as a row.
	proveTx = `select ` + receipts.SameSession + `,
    pg_catalog.set_config('role', coalesce(nullif(pg_catalog.current_setting('weir.role', true), ''), 'none'), true),
    1 operator(pg_catalog./) (pg_catalog.current_setting('weir.token', true) operator(pg_catalog.=) $1)::int,
    pg_catalog.set_config('search_path', coalesce(pg_catalog.current_setting('weir.path', true), 'pg_catalog'), true),
    pg_catalog.set_config('lock_timeout', $2, true), pg_catalog.set_config('statement_timeout', $3, true)`
	immediate = "set constraints all immediate"
	commit    = "commit"
)

var batchNames = []string{"weir_prove_tx", "weir_immediate", "weir_fence", "weir_commit"}

// liveTx is the transaction of a live step.
type liveTx struct {
	conn *pgxpool.Conn
	raw  *pgx.Conn
	// inner is nil until the transaction has begun: see begin.
	inner pgx.Tx
	token string
	// bound is how long the server lets a statement, or an idle transaction, be, in milliseconds.
	bound string
	// refused is why the transaction could not begin; aborted, that what was to be its first statement was refused.
	refused error
	aborted bool
	// simple: the pool prepares nothing, and does not pipeline.
	simple bool
	texts  *stepTexts
	// stepCtx is for what pgx gives no context: Conn and LargeObjects begin the transaction, too.
	stepCtx context.Context
	// dirty: the step's SQL may have changed the session, so the connection is not used again.
	dirty bool
	// over: the step's function has returned. What it has left behind of its transaction must not reach the connection,
	// which is somebody else's by then.
	over atomic.Bool
}

// beginLive gets a connection for the transaction, which is bounded on the server by what the step declared (R11): a
// process that freezes in it frees its locks, and its connection.
func (s *Service) beginLive(ctx context.Context, kind string, stepTime time.Duration) (*liveTx, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	t := &liveTx{conn: conn, raw: conn.Conn(), token: newToken(), bound: strconv.FormatInt(stepTime.Milliseconds(), 10), simple: s.simple, texts: &s.texts, stepCtx: ctx}
	if err := t.prepare(ctx, kind); err != nil {
		t.discard()
		return nil, err
	}
	return t, nil
}

func newToken() string {
	var b [12]byte
	_, _ = rand.Read(b[:]) // never fails, by its documentation
	return hex.EncodeToString(b[:])
}

// prepare costs round trips on a connection's first step only.
func (t *liveTx) prepare(ctx context.Context, kind string) error {
	if _, err := t.raw.Prepare(ctx, beginName, beginTx); err != nil {
		return err
	}
	if _, err := t.raw.Prepare(ctx, markName, markTx); err != nil {
		return err
	}
	texts := []string{proveTx, immediate, "", commit}
	for i, text := range texts {
		if text == "" {
			for _, stmt := range receipts.StepStatements(kind) {
				if _, err := t.raw.Prepare(ctx, stmt.Name, stmt.SQL); err != nil {
					return err
				}
			}
			continue
		}
		if _, err := t.raw.Prepare(ctx, batchNames[i], text); err != nil {
			return err
		}
	}
	return nil
}

// commit sends proof, constraints, fence with receipt, and COMMIT in one round trip, and the BEGIN before them where
// the step had no statement of its own. An error for which fencing.OutcomeOf says Unknown leaves it open whether the step
// committed.
func (t *liveTx) commit(ctx context.Context, fence receipts.StepFence) error {
	if t.aborted {
		return ErrStepTxFailed
	}
	if t.simple {
		if err := t.begin(ctx); err != nil {
			return err
		}
	}
	batch, opens := &pgx.Batch{}, 0
	if t.inner == nil {
		batch = t.opening()
		opens = batch.Len()
	}
	statement := min(fence.Lease/2, 10*time.Second)
	stmt, args := fence.Statement()
	t.queue(batch, batchNames[0], t.token, milliseconds(statement/2), milliseconds(statement))
	t.queue(batch, batchNames[1])
	t.queue(batch, stmt.Name, args...)
	t.queue(batch, batchNames[3])
	var results pgx.BatchResults
	if t.inner != nil {
		results = t.inner.SendBatch(ctx, batch)
	} else {
		results = t.conn.SendBatch(ctx, batch)
		t.inner = results.Tx()
	}
	for i := range batch.Len() {
		var (
			tag  pgconn.CommandTag
			same = true
			err  error
		)
		if i == opens {
			err = results.QueryRow().Scan(&same, nil, nil, nil, nil, nil)
		} else {
			tag, err = results.Exec()
		}
		if err != nil {
			_ = results.Close()
			err = explainStepTx(i-opens, err, fence)
			// Statements of ours that are gone, or a session that the step has had to itself: nobody knows what else is.
			t.dirty = t.dirty || errors.Is(err, ErrStepTxEnded) || sqlStateOf(err) == "26000"
			return err
		}
		t.dirty = t.dirty || !same
		if i == batch.Len()-1 && tag.String() != "COMMIT" {
			_ = results.Close()
			return ErrStepTxFailed // an aborted transaction answers ROLLBACK, without an error
		}
	}
	return results.Close()
}

// queue queues a prepared statement. In the simple protocol its name is nothing to pgx, but it is to EXECUTE.
func (t *liveTx) queue(batch *pgx.Batch, name string, args ...any) {
	if t.simple {
		name = execute(name, len(args))
	}
	batch.Queue(name, args...)
}

func execute(name string, args int) string {
	var text strings.Builder
	text.WriteString(`execute "` + name + `"`)
	for i := range args {
		fmt.Fprintf(&text, "%s$%d", [2]string{"(", ", "}[min(i, 1)], i+1)
	}
	if args > 0 {
		text.WriteByte(')')
	}
	return text.String()
}

func sqlStateOf(err error) string {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) {
		return pgErr.Code
	}
	return ""
}

func milliseconds(d time.Duration) string { return fmt.Sprint(max(d.Milliseconds(), 1)) }

// explainStepTx says what an error in the batch means.
func explainStepTx(at int, err error, fence receipts.StepFence) error {
	var pgErr *pgconn.PgError
	switch {
	case strings.Contains(err.Error(), "conn busy"): // pgx has no sentinel for it
		return ErrStepTxBusy
	case !errors.As(err, &pgErr):
		return err
	case pgErr.Code == "25P02":
		return ErrStepTxFailed
	case at == 0 && pgErr.Code == "22012":
		return ErrStepTxEnded
	case at == 2:
		return fence.MapError(err)
	}
	return err
}

// end gives the connection back, or closes it where its session may have changed, or its state is not known.
func (t *liveTx) end() {
	giveBack(t.conn, t.dirty || t.raw.IsClosed() || t.raw.PgConn().TxStatus() != 'I')
}

// giveBack releases a connection that is fit for the next user, and closes one that is not.
func giveBack(conn *pgxpool.Conn, spoiled bool) {
	if spoiled {
		closeSoon(conn.Hijack())
		return
	}
	conn.Release()
}

// rollback ends a transaction that is not to be committed.
func (t *liveTx) rollback(ctx context.Context) {
	if t.inner == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = t.inner.Rollback(ctx) // a connection that does not answer is closed by end
}

func (t *liveTx) discard() {
	closeSoon(t.conn.Hijack())
}

// look refuses SQL that would end the transaction, and marks the session of SQL that may change it. It is a courtesy:
// what hides from it is found by the token, by the fence, and by a look at the session.
func (t *stepTx) look(sql string) error {
	if t.live.over.Load() {
		return pgx.ErrTxClosed
	}
	text := t.live.texts.of(sql)
	if text.ends != "" {
		return fmt.Errorf("%w (%s)", ErrStepTx, text.ends)
	}
	if text.marks {
		t.live.dirty = true
	}
	return nil
}
