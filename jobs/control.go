package jobs

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// Cancel ends a run. Where nothing of it runs outside, it is canceled when Cancel returns, and a step that is being
// committed at that moment either committed before or has no effect. Where its owner has begun something outside, the
// cancellation is requested: the owner honours it at its next chance, a provider that has taken the message already
// wins, and Run.CancelRequestedAt is set meanwhile.
//
// Canceling a run that is canceled returns nil; a run that ended otherwise is a *StateError, an unknown one ErrNotFound.
func (c *Client) Cancel(ctx context.Context, id RunID) error {
	return c.inTx(ctx, func(tx pgx.Tx) error { return c.CancelTx(ctx, tx, id) })
}

// CancelTx is Cancel in the caller's transaction, which holds the run's lock from then on: commit soon, or the run's
// heartbeat cannot renew its lease.
func (c *Client) CancelTx(ctx context.Context, tx pgx.Tx, id RunID) error {
	l, found, _, err := receipts.Cancel(ctx, tx, uuid.UUID(id), fencing.CodeCanceled)
	switch {
	case err != nil:
		return fmt.Errorf("jobs: %w", err)
	case !found:
		return fmt.Errorf("run %s: %w", id, ErrNotFound)
	case l.Terminal && !isCanceled(l):
		return &StateError{Run: id, Op: "cancel", Status: Status(l.Status)}
	}
	return nil
}

func isCanceled(l fencing.Locked) bool {
	return l.ErrorCode == fencing.CodeCanceled || l.ErrorCode == fencing.CodeCanceledInRiver
}

// Redrive gives a delivery that is dead, or that the provider refused, another life: its budgets are back at zero, its
// receipts and its key stay, and it is due now. It is safe to call twice: a run that is pending already is left alone.
// Everything else, a canceled delivery included, is a *StateError, an unknown run ErrNotFound.
func (c *Client) Redrive(ctx context.Context, id RunID) error {
	return c.inTx(ctx, func(tx pgx.Tx) error { return c.RedriveTx(ctx, tx, id) })
}

// RedriveTx is Redrive in the caller's transaction.
func (c *Client) RedriveTx(ctx context.Context, tx pgx.Tx, id RunID) error {
	l, found, err := fencing.LockRun(ctx, tx, uuid.UUID(id))
	switch {
	case err != nil:
		return fmt.Errorf("jobs: %w", err)
	case !found:
		return fmt.Errorf("run %s: %w", id, ErrNotFound)
	case !l.Terminal && !l.Owned:
		return nil
	}
	erased, err := isErased(ctx, tx, id)
	if err != nil {
		return err
	}
	refused := &StateError{Run: id, Op: "redrive", Status: Status(l.Status)}
	switch {
	case erased:
		refused.Detail = "its payload was erased"
		return refused
	case l.Terminal && isCanceled(l):
		refused.Detail = "it was canceled"
		return refused
	}
	redriven, err := fencing.RedriveLocked(ctx, tx, fencing.MachineOf(l.Kind), l.Run)
	if err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	if !redriven {
		return refused
	}
	err = fencing.Ring(ctx, tx, c.bells, fencing.Rung{Run: l.Run, Kind: l.Kind, Queue: l.Queue, Priority: l.Priority})
	if err != nil {
		return fmt.Errorf("jobs: redrive run %s: %w", id, err)
	}
	return nil
}

var erased = fencing.Compile("is erased", `
select not exists (select from weir.payload where run_id = @run::uuid and body is not null)`)

func isErased(ctx context.Context, tx pgx.Tx, id RunID) (gone bool, err error) {
	if err := tx.QueryRow(ctx, erased.SQL, erased.Bind(fencing.Args{"run": id.String()})...).Scan(&gone); err != nil {
		return false, fmt.Errorf("jobs: look at the payload of run %s: %w", id, err)
	}
	return gone, nil
}

// Erase removes the personal data of a terminal run: payload, outputs, references, texts of errors, tags and metadata.
// Its status, codes, receipts' outcomes, times and key stay, so repeats still answer. It cannot be undone, and the run
// cannot be redriven afterwards. A run that is not terminal is a *StateError: cancel it first.
func (c *Client) Erase(ctx context.Context, id RunID) error {
	return c.inTx(ctx, func(tx pgx.Tx) error { return c.EraseTx(ctx, tx, id) })
}

// EraseTx is Erase in the caller's transaction.
func (c *Client) EraseTx(ctx context.Context, tx pgx.Tx, id RunID) error {
	l, found, err := fencing.LockRun(ctx, tx, uuid.UUID(id))
	switch {
	case err != nil:
		return fmt.Errorf("jobs: %w", err)
	case !found:
		return fmt.Errorf("run %s: %w", id, ErrNotFound)
	case !l.Terminal:
		return &StateError{Run: id, Op: "erase", Status: Status(l.Status)}
	}
	if err := fencing.EraseLocked(ctx, tx, l.Run); err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	if err := receipts.Erase(ctx, tx, l.Run); err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	if err := erasePlan(ctx, tx, l); err != nil {
		return err
	}
	if err := c.bells.Erase(ctx, tx, l.Run); err != nil {
		return fmt.Errorf("jobs: %w", err)
	}
	return nil
}
