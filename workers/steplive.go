package workers

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirqueue/weir/internal/coalesce"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// maxRepeats bounds how often one try repeats a step whose COMMIT turned out not to have happened.
const maxRepeats = 5

// live executes a step of the user's own statements in one transaction.
func (t *try) live(ctx context.Context, s boundStep, last bool) (result, bool) {
	for range maxRepeats {
		out, sent, err := t.liveOnce(ctx, s, last)
		switch {
		case err == nil:
			t.held.Renewed(sent)
			return t.committed(s, out, last)
		case errors.Is(err, fencing.ErrLeaseLost):
			return t.lost(s)
		case errors.Is(err, receipts.ErrAlreadyDone):
			if done, res, stop := t.adopt(ctx, s, last); done {
				return res, stop
			}
			return t.failed(s, err), true
		case sent.IsZero() || brokeRules(err) || fencing.OutcomeOf(err) != fencing.Unknown:
			// Not sent, or refused: nothing was committed.
			dropReadOnly(t.service.pool, err)
			return t.failed(s, err), true
		}
		done, res, stop := t.settleDoubt(ctx, s, out, last)
		if done {
			return res, stop
		}
	}
	return t.failed(s, errors.New("the COMMIT's answer was lost again and again")), true
}

// liveOnce runs the step once. sent is set when the batch with the COMMIT was sent: the moment before it.
func (t *try) liveOnce(ctx context.Context, s boundStep, last bool) (out json.RawMessage, sent time.Time, err error) {
	k := t.kind
	tx, err := t.service.beginLive(ctx, k.kind, k.stepTime)
	if err != nil {
		return nil, sent, err
	}
	defer tx.end()
	committed := false
	defer func() { // also when the step panics
		tx.over.Store(true)
		if !committed {
			tx.rollback(ctx)
		}
	}()
	value, err := s.impl.live(ctx, &stepTx{live: tx}, t.in(s))
	tx.over.Store(true)
	if tx.refused != nil {
		return nil, sent, tx.refused
	}
	if err == nil {
		out, err = encode(value)
	}
	if err != nil {
		return nil, sent, err
	}
	if ctx.Err() != nil {
		return nil, sent, context.Cause(ctx) // the lease may be gone: do not even begin to commit
	}
	// Once it is sent it is not ended: that would only make its outcome unknown.
	commitCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.lease)
	defer cancel()
	sent = time.Now()
	err = tx.commit(commitCtx, receipts.StepFence{
		Run: t.claimed.Run, Kind: k.kind, Attempt: t.held.Attempt(), Step: s.Step, Output: out, Last: last, RunOutput: out,
		Lease: k.lease, StepTime: k.stepTime,
	})
	committed = err == nil
	return out, sent, err
}

// settleDoubt finds out what a COMMIT did whose answer was lost (R10). done is false when it did not happen: then the
// step is to be repeated, under the new attempt.
func (t *try) settleDoubt(ctx context.Context, s boundStep, out json.RawMessage, last bool) (done bool, res result, stop bool) {
	k := t.kind
	service := t.service
	attempt := t.held.Attempt()
	t.held.Skip()
	ctx = context.WithoutCancel(ctx)
	finished, err := service.resolve(ctx, t.held, attempt, t.claimed, k, time.Now().Add(k.lease))
	if err != nil {
		res, stop = t.lost(s)
		return true, res, stop
	}
	if finished {
		res, stop = t.committed(s, out, last)
		return true, res, stop
	}
	// In a statement of its own: its snapshot is newer than the lock that waited for the transaction in doubt.
	return t.adopt(ctx, s, last)
}

// brokeRules reports a step whose transaction was refused for what the step did in it: nothing was committed with it.
func brokeRules(err error) bool {
	return errors.Is(err, ErrStepTxFailed) || errors.Is(err, ErrStepTxBusy) || errors.Is(err, ErrStepTxEnded)
}

// adopt goes on from the step's receipt, if it has one that is ok.
func (t *try) adopt(ctx context.Context, s boundStep, last bool) (done bool, res result, stop bool) {
	list, err := receipts.List(ctx, t.service.pool, t.claimed.Run)
	if err != nil {
		return true, t.failed(s, err), true
	}
	for _, r := range list {
		if r.Step.Index == s.Index && r.Outcome == receipts.OK {
			t.held.Renewed(time.Now())
			res, stop = t.committed(s, r.Output, last)
			return true, res, stop
		}
	}
	return false, result{}, false
}

// statement executes a step of one statement, with fence and receipt in the same: one round trip, one commit.
func (t *try) statement(ctx context.Context, s boundStep, last bool) (result, bool) {
	for range maxRepeats {
		// Written down anew for each repeat: it may hold the attempt, which a doubt raises.
		sql, err := s.impl.statement(ctx, t.in(s))
		if err != nil {
			return t.failed(s, err), true
		}
		if ctx.Err() != nil {
			return interrupted(s.Step, "interrupted", context.Cause(ctx)), true
		}
		sent := time.Now()
		out, err := t.statementOnce(ctx, s, sql, last)
		switch {
		case err == nil:
			t.held.Renewed(sent)
			return t.committed(s, out, last)
		case errors.Is(err, fencing.ErrLeaseLost):
			return t.lost(s)
		case errors.Is(err, receipts.ErrAlreadyDone):
			if done, res, stop := t.adopt(ctx, s, last); done {
				return res, stop
			}
			return t.failed(s, err), true
		case nothingDone(err):
			dropReadOnly(t.service.pool, err)
			return t.failed(s, err), true
		}
		done, res, stop := t.settleDoubt(ctx, s, nil, last)
		if done {
			return res, stop
		}
	}
	return t.failed(s, errors.New("the statement's answer was lost again and again")), true
}

// errNothingSent says that a statement did not leave this process.
var errNothingSent = errors.New("weir: the step's statement was not sent")

// nothingDone reports an error of a statement that surely committed nothing.
func nothingDone(err error) bool {
	return fencing.OutcomeOf(err) != fencing.Unknown || errors.Is(err, ErrNoRows) || errors.Is(err, ErrOutput) || errors.Is(err, errNothingSent) ||
		errors.Is(err, coalesce.ErrNotSent)
}

// statementOnce executes the statement, with others where it may.
func (t *try) statementOnce(ctx context.Context, s boundStep, sql SQL, last bool) (json.RawMessage, error) {
	k := t.kind
	call := statementCall{text: t.service.texts.of(sql.Text), fence: receipts.StatementFence{
		StepFence: receipts.StepFence{
			Run: t.claimed.Run, Kind: k.kind, Attempt: t.held.Attempt(), Step: s.Step, Last: last, Lease: k.lease, StepTime: k.stepTime,
		},
		SQL: sql.Text, Args: sql.Args,
	}}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), k.stepTime)
	defer cancel()
	if !t.service.prepares || !call.text.sociable() {
		return t.service.statementAlone(ctx, call)
	}
	return k.writes.statements.Do(ctx, call)
}

func (s *Service) statementAlone(ctx context.Context, call statementCall) (json.RawMessage, error) {
	conn, err := s.pool.Acquire(ctx)
	if err != nil {
		return nil, errors.Join(errNothingSent, err)
	}
	changed := call.text.marks
	defer func() { giveBack(conn, changed) }()
	call.fence.SessionChanged = &changed
	began := time.Now()
	out, err := call.fence.Execute(ctx, conn)
	switch took := time.Since(began); {
	case changed || took > slowStep:
		call.text.keepAlone()
	case err == nil && took < quickStep && s.prepares && call.text.quick():
		var harmless bool
		if conn.QueryRow(ctx, callsNothingOfOnesOwn, call.text.calls).Scan(&harmless) == nil && harmless {
			call.text.prove()
		}
	}
	var (
		pgErr    *pgconn.PgError
		unformed pgx.ErrPreprocessingBatch
	)
	switch {
	case errors.Is(err, receipts.ErrTouchedNothing):
		return nil, ErrNoRows
	case errors.Is(err, receipts.ErrOutputTooLarge):
		return nil, fmt.Errorf("%w: the statement's rows are larger", ErrOutput)
	case errors.Is(err, fencing.ErrLeaseLost) || errors.Is(err, receipts.ErrAlreadyDone):
		return nil, err
	case err != nil && !errors.As(err, &pgErr) && (errors.As(err, &unformed) || !conn.Conn().IsClosed()):
		// It has too few parameters, or one that cannot be encoded, or the connection broke while it was prepared. In the
		// modes that prepare nothing pgx closes a connection whose answer it did not get, and this one is open.
		return nil, errors.Join(errNothingSent, err)
	case errors.As(err, &pgErr) && pgErr.Code == "0A000" && strings.Contains(strings.ToLower(call.fence.SQL), "with"):
		return nil, fmt.Errorf("a statement step takes no writing WITH of its own; use a Transactional step: %w", err)
	}
	return out, err
}
