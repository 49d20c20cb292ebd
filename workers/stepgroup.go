package workers

import (
	"context"
	"encoding/json"
	"errors"
	"time"

	"github.com/google/uuid"

	"github.com/weirqueue/weir/internal/coalesce"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// Statement steps of different runs that come at the same time share a transaction, each with its own fence and its own
// receipt: most of what such a step costs is the commit and the round trip. What is refused, slow, or waits for a lock is
// carried out alone, and so are its neighbours, once; its text then stays alone for a while (docs/adr/0013).

const (
	// maxGroup bounds how many steps share a transaction, and so how long the locks of the first are held.
	maxGroup = 16
	// groupFlushers is how many groups of a kind are under way at once, at most: each waits for the disk. groupPatience is for
	// how long one goes alone.
	groupFlushers = 4
	groupPatience = 500 * time.Microsecond
	// quickStep is how long a statement may take alone to be one that may share a transaction. In a group it may take as long
	// as slowStep, and wait for a lock for twice as long as quickStep.
	quickStep = 50 * time.Millisecond
	slowStep  = 5 * quickStep
	// aloneFor is how long a text stays out of groups after it has spoilt one.
	aloneFor = time.Minute
)

// statementCall is a statement step on its way.
type statementCall struct {
	fence receipts.StatementFence
	text  *stepText
}

func (s *Service) newStatements(lease time.Duration) *coalesce.Group[uuid.UUID, statementCall, json.RawMessage] {
	// A group that takes longer than its write may leaves everybody in it in doubt.
	wait := receipts.GroupWait{
		Statement: min(slowStep, lease/8), Lock: min(2*quickStep, lease/16), Prepare: min(time.Second, lease/8), Group: writeTimeout(lease) / 2,
	}
	return coalesce.New(coalesce.Config[uuid.UUID, statementCall, json.RawMessage]{
		Key: func(c statementCall) uuid.UUID { return c.fence.Run },
		Max: maxGroup, Flushers: groupFlushers, Patience: groupPatience, Timeout: writeTimeout(lease), InDoubt: groupInDoubt, Hold: 2 * quickStep,
		One: s.statementAlone,
		Many: func(ctx context.Context, calls []statementCall) (map[uuid.UUID]json.RawMessage, error) {
			return s.statementsTogether(ctx, calls, wait)
		},
	})
}

// groupInDoubt reports a group that may have been committed.
func groupInDoubt(err error) bool {
	var refused *receipts.GroupError
	if errors.As(err, &refused) {
		return refused.InDoubt
	}
	return inDoubt(err)
}

func (s *Service) statementsTogether(ctx context.Context, calls []statementCall, wait receipts.GroupWait) (map[uuid.UUID]json.RawMessage, error) {
	conn, err := s.acquire(ctx)
	if err != nil {
		return nil, err
	}
	fences := make([]receipts.StatementFence, len(calls))
	for i, c := range calls {
		fences[i] = c.fence
	}
	outs, err := receipts.ExecuteMany(ctx, conn, fences, wait)
	conn.Release() // the pool drops one that is closed or busy
	var refused *receipts.GroupError
	switch {
	case err == nil:
	case errors.Is(err, fencing.ErrLeaseLost) || errors.Is(err, receipts.ErrAlreadyDone):
		return nil, err // it says nothing of the text
	case errors.As(err, &refused) && refused.At >= 0 && !refused.InDoubt:
		calls[refused.At].text.keepAlone()
		return nil, err
	default:
		for _, c := range calls {
			c.text.keepAlone()
		}
		return nil, err
	}
	done := make(map[uuid.UUID]json.RawMessage, len(calls))
	for i, c := range calls {
		done[c.fence.Run] = outs[i]
	}
	return done, nil
}
