package workers

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/receipts"
)

// A try that cannot find out whether it still owns its run may still own it, so that its last write comes through. The
// drill found one that said nothing of a step that had acted outside.
func TestLost_WhatAnOutsideStepDidIsUnknown(t *testing.T) {
	t.Parallel()
	for effect, outcome := range map[receipts.Effect]receipts.Outcome{
		receipts.AtLeastOnce: receipts.Unknown, receipts.Idempotent: receipts.Unknown, receipts.Reconciled: receipts.Unknown,
		receipts.Transactional: "",
	} {
		res, stop := (&try{}).lost(boundStep{Step: receipts.Step{Effect: effect}})
		require.True(t, stop)
		require.Equal(t, outcome, res.outcome, effect)
		require.Equal(t, effect == receipts.Transactional, res.notSent, "%s: a release would take its `started` back", effect)
	}
}
