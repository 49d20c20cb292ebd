package workers

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"regexp"
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
    set_config('statement_timeout', $2, true), set_config('weir.role', current_setting('role'), true), ` + receipts.NoteSession
	// resetRole says whether the session is as it was, and goes back to the role that the pool's connection had.
	resetRole = `select ` + receipts.SameSession + `,
    pg_catalog.set_config('role', coalesce(nullif(pg_catalog.current_setting('weir.role', true), ''), 'none'), true)`
	// proveTx fails with 22012 after a smuggled COMMIT: the token was local to the transaction that is gone. The fence
	// then resolves its names in pg_catalog alone, and waits for a lock less long than a statement may take.
	proveTx = `select 1 / (current_setting('weir.token', true) = $1)::int, set_config('search_path', 'pg_catalog', true),
    set_config('lock_timeout', $2, true), set_config('statement_timeout', $3, true)`
	immediate = "set constraints all immediate"
	commit    = "commit"
)

var batchNames = []string{"weir_reset_role", "weir_prove_tx", "weir_immediate", "weir_fence", "weir_commit"}

// liveTx is the transaction of a live step.
type liveTx struct {
	conn  *pgxpool.Conn
	inner pgx.Tx
	token string
	// dirty: the step's SQL may have changed the session, so the connection is not used again.
	dirty bool
	// over: the step's function has returned. What it has left behind of its transaction must not reach the connection,
	// which is somebody else's by then.
	over atomic.Bool
}

// beginLive begins the transaction, bounded on the server by what the step declared (R11): a process that freezes in it
// frees its locks, and its connection.
func beginLive(ctx context.Context, pool *pgxpool.Pool, kind string, stepTime time.Duration) (*liveTx, error) {
	conn, err := pool.Acquire(ctx)
	if err != nil {
		return nil, err
	}
	t := &liveTx{conn: conn, token: newToken()}
	if err := t.prepare(ctx, kind); err != nil {
		t.discard()
		return nil, err
	}
	t.inner, err = conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf(
		"begin isolation level read committed read write; execute weir_mark_tx('%s', '%d')", t.token, stepTime.Milliseconds())})
	if err != nil {
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
	if _, err := t.conn.Conn().Prepare(ctx, "weir_mark_tx", markTx); err != nil {
		return err
	}
	texts := []string{resetRole, proveTx, immediate, "", commit}
	for i, text := range texts {
		if text == "" {
			for _, stmt := range receipts.StepStatements(kind) {
				if _, err := t.conn.Conn().Prepare(ctx, stmt.Name, stmt.SQL); err != nil {
					return err
				}
			}
			continue
		}
		if _, err := t.conn.Conn().Prepare(ctx, batchNames[i], text); err != nil {
			return err
		}
	}
	return nil
}

// commit sends reset, proof, constraints, fence with receipt, and COMMIT in one round trip. An error for which
// fencing.OutcomeOf says Unknown leaves it open whether the step committed.
func (t *liveTx) commit(ctx context.Context, fence receipts.StepFence) error {
	statement := min(fence.Lease/2, 10*time.Second)
	stmt, args := fence.Statement()
	batch := &pgx.Batch{}
	batch.Queue(batchNames[0])
	batch.Queue(batchNames[1], t.token, milliseconds(statement/2), milliseconds(statement))
	batch.Queue(batchNames[2])
	batch.Queue(stmt.Name, args...)
	batch.Queue(batchNames[4])
	results := t.inner.SendBatch(ctx, batch)
	for i := range batch.Len() {
		var (
			tag  pgconn.CommandTag
			same = true
			err  error
		)
		if i == 0 {
			err = results.QueryRow().Scan(&same, nil)
		} else {
			tag, err = results.Exec()
		}
		if err != nil {
			_ = results.Close()
			err = explainStepTx(i, err, fence)
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
	case at == 1 && pgErr.Code == "22012":
		return ErrStepTxEnded
	case at == 3:
		return fence.MapError(err)
	}
	return err
}

// end gives the connection back, or closes it where its session may have changed, or its state is not known.
func (t *liveTx) end() {
	giveBack(t.conn, t.dirty || t.conn.Conn().IsClosed() || t.conn.Conn().PgConn().TxStatus() != 'I')
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
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
	defer cancel()
	_ = t.inner.Rollback(ctx) // a connection that does not answer is closed by end
}

func (t *liveTx) discard() {
	closeSoon(t.conn.Hijack())
}

// stepTx is what a step's function sees: the transaction without the means to end it.
type stepTx struct {
	pgx.Tx
	live *liveTx
	// nested is a savepoint, which may be committed and rolled back.
	nested bool
}

func (t *stepTx) Commit(ctx context.Context) error {
	switch {
	case t.live.over.Load():
		return pgx.ErrTxClosed
	case t.nested:
		return t.Tx.Commit(ctx)
	}
	return ErrStepTx
}

func (t *stepTx) Rollback(ctx context.Context) error {
	switch {
	case t.live.over.Load():
		return pgx.ErrTxClosed
	case t.nested:
		return t.Tx.Rollback(ctx)
	}
	return ErrStepTx
}

func (t *stepTx) Begin(ctx context.Context) (pgx.Tx, error) {
	if t.live.over.Load() {
		return nil, pgx.ErrTxClosed
	}
	inner, err := t.Tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &stepTx{Tx: inner, live: t.live, nested: true}, nil
}

func (t *stepTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.look(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	return t.Tx.Exec(ctx, sql, args...)
}

func (t *stepTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.look(sql); err != nil {
		return nil, err
	}
	return t.Tx.Query(ctx, sql, args...)
}

func (t *stepTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.look(sql); err != nil {
		return errRow{err}
	}
	return t.Tx.QueryRow(ctx, sql, args...)
}

func (t *stepTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	for _, q := range b.QueuedQueries {
		if err := t.look(q.SQL); err != nil {
			return errBatch{err}
		}
	}
	return t.Tx.SendBatch(ctx, b)
}

func (t *stepTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	if t.live.over.Load() {
		return 0, pgx.ErrTxClosed
	}
	return t.Tx.CopyFrom(ctx, table, columns, src)
}

// Prepare leaves a name behind in the session.
func (t *stepTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.look(sql); err != nil {
		return nil, err
	}
	t.live.dirty = true
	return t.Tx.Prepare(ctx, name, sql)
}

type errRow struct{ err error }

func (r errRow) Scan(...any) error { return r.err }

type errBatch struct{ err error }

func (b errBatch) Exec() (pgconn.CommandTag, error) { return pgconn.CommandTag{}, b.err }
func (b errBatch) Query() (pgx.Rows, error)         { return nil, b.err }
func (b errBatch) QueryRow() pgx.Row                { return errRow(b) }
func (b errBatch) Close() error                     { return b.err }
func (b errBatch) Tx() pgx.Tx                       { return nil }

var (
	sqlComments = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/`)
	endsTx      = regexp.MustCompile(`(?i)^\s*(?:(?:commit|end|abort|begin|start\s+transaction|prepare\s+transaction)\b|rollback\b(?:\s+(?:work|transaction))?\s*(?:$|;|and\b))`)
	// What outlives a transaction in a session, or may hide what does.
	marksSession = regexp.MustCompile(`(?i)(?:^|;)\s*(?:set|reset|listen|unlisten|prepare|deallocate|discard|load|declare|do|call)\b|\bset_config\b|\bpg_(?:try_)?advisory_lock|\bcreate\s+(?:local\s+|global\s+)?temp`)
)

// look refuses SQL that would end the transaction, and marks the session of SQL that may change it. It is a courtesy:
// what hides from it is found by the token, by the fence, and by a look at the session.
func (t *stepTx) look(sql string) error {
	if t.live.over.Load() {
		return pgx.ErrTxClosed
	}
	text := strings.TrimSpace(sqlComments.ReplaceAllString(sql, " "))
	statements := []string{text}
	if !strings.ContainsAny(text, "'$\"") {
		statements = strings.Split(text, ";") // nothing in it can hide a semicolon
	}
	for _, one := range statements {
		if endsTx.MatchString(one) {
			return fmt.Errorf("%w (%.40q)", ErrStepTx, strings.TrimSpace(one))
		}
	}
	if marksSession.MatchString(text) {
		t.live.dirty = true
	}
	return nil
}
