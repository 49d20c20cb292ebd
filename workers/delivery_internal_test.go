package workers

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// What an earlier try may have sent stays unknown, whatever keeps a later one from even beginning; and it is not handed over as if
// nothing were outside, which would take its receipt back.
func TestDelivery_ATryThatDoesNotBeginLeavesADoubt(t *testing.T) {
	t.Parallel()
	w := &deliveryWorker{kind: workKind{kind: "delivery", start: &receipts.Send}}
	w.kind.do = w.deliver
	keeper := fencing.NewKeeper(nil, time.Minute, nil)
	for before, outcome := range map[receipts.Outcome]receipts.Outcome{
		"": receipts.Failed, receipts.Failed: receipts.Failed, receipts.Unknown: receipts.Unknown, receipts.Started: receipts.Unknown,
	} {
		ctx, cancel := context.WithCancelCause(t.Context())
		ctx, held := keeper.Hold(ctx, uuid.New(), 3, time.Minute, time.Minute, time.Now())
		c := &fencing.Claimed{Run: held.Run, Kind: "delivery", Attempt: 3, Before: string(before), Payload: []byte("x")}
		unreadable := (&Service{}).actAndJudge(ctx, held, c, &w.kind)
		require.Equal(t, "payload_unreadable", unreadable.code)
		cancel(errors.New("shutdown"))
		notBegun := (&Service{}).actAndJudge(ctx, held, c, &w.kind)
		require.Equal(t, "not_begun", notBegun.code)
		for _, res := range []result{unreadable, notBegun} {
			require.Equal(t, receipts.Send, res.step)
			require.Equal(t, outcome, res.outcome, "%s after %q", res.code, before)
			require.Equal(t, outcome == receipts.Failed, res.notSent, "%s after %q", res.code, before)
		}
		held.Drop()
	}
}
