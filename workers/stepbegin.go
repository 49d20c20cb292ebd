package workers

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A live step's transaction begins with the first statement of the step's own, in one round trip, or with the batch that
// ends it where the step has none: that is a round trip less for every step. pgx pipelines what has parameters; before
// anything else a plain BEGIN goes first.

const (
	beginTx   = "begin isolation level read committed read write"
	beginName = "weir_begin"
	markName  = "weir_mark_tx"
)

// begin begins the transaction, if it has not begun.
func (t *liveTx) begin(ctx context.Context) error {
	switch {
	case t.inner != nil:
		return nil
	case t.refused != nil:
		return t.refused
	case t.aborted:
		return ErrStepTxFailed
	}
	inner, err := t.conn.BeginTx(ctx, pgx.TxOptions{BeginQuery: fmt.Sprintf("%s; execute %s('%s', '%s')", beginTx, markName, t.token, t.bound)})
	if err != nil {
		return t.refuse(ctx, err)
	}
	t.inner = inner
	return nil
}

// refuse notes that the transaction could not begin. It is what ends the try, whatever the step's function makes of it: a
// server that was restarted is nothing that the step did. A context that the function itself has ended is its own affair.
func (t *liveTx) refuse(ctx context.Context, err error) error {
	t.dirty = true
	if ctx.Err() == nil {
		t.refused = err
	}
	return err
}

// opening is a batch that begins the transaction. Its two results belong to opened.
func (t *liveTx) opening() *pgx.Batch {
	b := &pgx.Batch{}
	b.BeginTx(pgx.TxOptions{BeginQuery: beginName})
	b.Queue(markName, t.token, t.bound)
	return b
}

// opened reads the results of opening. After an error the batch is closed, and nothing that came with it was executed.
func (t *liveTx) opened(ctx context.Context, results pgx.BatchResults) error {
	for range 2 {
		if _, err := results.Exec(); err != nil {
			_ = results.Close()
			return t.notOpened(ctx, err)
		}
	}
	t.inner = results.Tx()
	return nil
}

func (t *liveTx) notOpened(ctx context.Context, err error) error {
	var (
		unformed pgx.ErrPreprocessingBatch
		pgErr    *pgconn.PgError
	)
	switch {
	case errors.As(err, &unformed) && !connectionLost(err):
		// The step's own statement cannot be parsed, or takes no such parameters. In a transaction that had begun, this would
		// have aborted it, so nothing can follow it here either.
		t.aborted = true
		return unformed.Unwrap()
	case t.raw.IsClosed(), errors.As(err, &pgErr):
		return t.refuse(ctx, err)
	}
	return err // a rewriter's: nothing was sent, and the transaction can still begin
}

// fits reports whether pgx can send a statement in one pipeline with the BEGIN, and would treat it as it treats it alone.
func (t *liveTx) fits(sql string, args []any) bool {
	if t.inner != nil || t.refused != nil || t.aborted || t.simple || sql == "" {
		return false
	}
	for _, arg := range args {
		switch arg.(type) {
		case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID:
			return false
		case pgx.QueryRewriter: // may stand before one of these
		default:
			return true
		}
	}
	return len(args) > 0
}

// first sends the transaction's first statement with its BEGIN. The statement's result is the next one of results.
func (t *liveTx) first(ctx context.Context, sql string, args []any) (pgx.BatchResults, error) {
	b := t.opening()
	b.Queue(sql, args...)
	results := t.conn.SendBatch(ctx, b)
	if err := t.opened(ctx, results); err != nil {
		return nil, err
	}
	return results, nil
}

func (t *liveTx) exec(ctx context.Context, sql string, args []any) (pgconn.CommandTag, error) {
	if !t.fits(sql, args) {
		if err := t.begin(ctx); err != nil {
			return pgconn.CommandTag{}, err
		}
		return t.inner.Exec(ctx, sql, args...)
	}
	results, err := t.first(ctx, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	tag, err := results.Exec()
	return tag, errors.Join(err, closeAfter(results, err))
}

// closeAfter closes a batch, and says what that adds to an error that it has shown.
func closeAfter(results pgx.BatchResults, shown error) error {
	if err := results.Close(); shown == nil {
		return err
	}
	return nil
}

func (t *liveTx) query(ctx context.Context, sql string, args []any) (pgx.Rows, error) {
	if !t.fits(sql, args) {
		if err := t.begin(ctx); err != nil {
			return failedRows(err), err
		}
		return t.inner.Query(ctx, sql, args...)
	}
	results, err := t.first(ctx, sql, args)
	if err != nil {
		return failedRows(err), err
	}
	rows, err := results.Query()
	if err != nil {
		_ = results.Close()
		return rows, err
	}
	return &firstRows{Rows: rows, results: results}, nil
}

func (t *liveTx) queryRow(ctx context.Context, sql string, args []any) pgx.Row {
	if !t.fits(sql, args) {
		if err := t.begin(ctx); err != nil {
			return failed(err).QueryRow()
		}
		return t.inner.QueryRow(ctx, sql, args...)
	}
	results, err := t.first(ctx, sql, args)
	if err != nil {
		return failed(err).QueryRow()
	}
	return firstRow{row: results.QueryRow(), results: results}
}

func (t *liveTx) sendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults {
	if t.inner != nil || t.refused != nil || t.aborted || t.simple || b.Len() == 0 {
		if err := t.begin(ctx); err != nil {
			return failed(err)
		}
		return t.inner.SendBatch(ctx, b)
	}
	whole := t.opening()
	whole.QueuedQueries = append(whole.QueuedQueries, b.QueuedQueries...)
	results := t.conn.SendBatch(ctx, whole)
	if err := t.opened(ctx, results); err != nil {
		return failed(err)
	}
	return firstBatch{results}
}

// failed are results that report err wherever they are asked.
func failed(err error) pgx.BatchResults { return pgx.FailedBatchResults(&pgx.Batch{}, err) }

func failedRows(err error) pgx.Rows {
	rows, _ := failed(err).Query()
	return rows
}

// firstRows are the rows of a transaction's first statement. The connection is free once the pipeline is closed, too.
type firstRows struct {
	pgx.Rows
	results pgx.BatchResults
	err     error
}

func (r *firstRows) Next() bool {
	if r.Rows.Next() {
		return true
	}
	r.Close()
	return false
}

func (r *firstRows) Close() {
	r.Rows.Close()
	if err := closeAfter(r.results, r.Rows.Err()); r.err == nil {
		r.err = err
	}
}

func (r *firstRows) Err() error {
	if r.err != nil {
		return r.err
	}
	return r.Rows.Err()
}

// Scan closes the rows with an error, as pgx does.
func (r *firstRows) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.Close()
	}
	return err
}

func (r *firstRows) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		r.Close()
	}
	return values, err
}

type firstRow struct {
	row     pgx.Row
	results pgx.BatchResults
}

func (r firstRow) Scan(dest ...any) error {
	err := r.row.Scan(dest...)
	return errors.Join(err, closeAfter(r.results, err))
}

// firstBatch is what an application sees of its batch: not the transaction that was begun with it.
type firstBatch struct{ pgx.BatchResults }

func (firstBatch) Tx() pgx.Tx { return nil }
