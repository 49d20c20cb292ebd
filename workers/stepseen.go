package workers

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// stepTx is what a step's function sees: the transaction without the means to end it. It embeds none, so that a method
// that pgx adds does not pass it by.
type stepTx struct {
	live *liveTx
	// savepoint may be committed and rolled back. It is nil for the transaction itself.
	savepoint pgx.Tx
}

var _ pgx.Tx = (*stepTx)(nil)

func (t *stepTx) Commit(ctx context.Context) error {
	switch {
	case t.live.over.Load():
		return pgx.ErrTxClosed
	case t.savepoint != nil:
		return t.savepoint.Commit(ctx)
	}
	return ErrStepTx
}

func (t *stepTx) Rollback(ctx context.Context) error {
	switch {
	case t.live.over.Load():
		return pgx.ErrTxClosed
	case t.savepoint != nil:
		return t.savepoint.Rollback(ctx)
	}
	return ErrStepTx
}

// begun is the transaction for what does not go with its BEGIN.
func (t *stepTx) begun(ctx context.Context) (pgx.Tx, error) {
	switch {
	case t.live.over.Load():
		return nil, pgx.ErrTxClosed
	case t.savepoint != nil:
		return t.savepoint, nil
	}
	if err := t.live.begin(ctx); err != nil {
		return nil, err
	}
	return t.live.inner, nil
}

func (t *stepTx) Begin(ctx context.Context) (pgx.Tx, error) {
	tx, err := t.begun(ctx)
	if err != nil {
		return nil, err
	}
	inner, err := tx.Begin(ctx)
	if err != nil {
		return nil, err
	}
	return &stepTx{live: t.live, savepoint: inner}, nil
}

func (t *stepTx) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	if err := t.look(sql); err != nil {
		return pgconn.CommandTag{}, err
	}
	if t.savepoint != nil {
		return t.savepoint.Exec(ctx, sql, args...)
	}
	return t.live.exec(ctx, sql, args)
}

func (t *stepTx) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	if err := t.look(sql); err != nil {
		return failedRows(err), err
	}
	if t.savepoint != nil {
		return t.savepoint.Query(ctx, sql, args...)
	}
	return t.live.query(ctx, sql, args)
}

func (t *stepTx) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	if err := t.look(sql); err != nil {
		return failed(err).QueryRow()
	}
	if t.savepoint != nil {
		return t.savepoint.QueryRow(ctx, sql, args...)
	}
	return t.live.queryRow(ctx, sql, args)
}

func (t *stepTx) SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.live.over.Load() {
		return failed(pgx.ErrTxClosed)
	}
	for _, q := range b.QueuedQueries {
		if err := t.look(q.SQL); err != nil {
			return failed(err)
		}
	}
	if t.savepoint != nil {
		return t.savepoint.SendBatch(ctx, b)
	}
	return t.live.sendBatch(ctx, b)
}

func (t *stepTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	tx, err := t.begun(ctx)
	if err != nil {
		return 0, err
	}
	return tx.CopyFrom(ctx, table, columns, src)
}

// Prepare leaves a name behind in the session.
func (t *stepTx) Prepare(ctx context.Context, name, sql string) (*pgconn.StatementDescription, error) {
	if err := t.look(sql); err != nil {
		return nil, err
	}
	tx, err := t.begun(ctx)
	if err != nil {
		return nil, err
	}
	t.live.dirty = true
	return tx.Prepare(ctx, name, sql)
}

// LargeObjects are used past what is seen here, so the transaction begins before. Of one that could not, they are closed.
func (t *stepTx) LargeObjects() pgx.LargeObjects {
	tx, err := t.begun(t.live.stepCtx)
	if err != nil {
		b := &pgx.Batch{}
		b.BeginTx(pgx.TxOptions{})
		tx = pgx.FailedBatchResults(b, err).Tx()
	}
	return tx.LargeObjects()
}

// Conn is used past the transaction, too: before it has begun, each statement would commit on its own. So it begins here,
// and where it could not, the connection is a closed one.
func (t *stepTx) Conn() *pgx.Conn {
	if t.live.over.Load() {
		return t.live.raw
	}
	if _, err := t.begun(t.live.stepCtx); err != nil {
		closeSoon(t.live.raw)
	}
	return t.live.raw
}
