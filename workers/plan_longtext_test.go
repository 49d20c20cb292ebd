package workers_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/tool/desktool"
)

// A text that is too long for a receipt is replaced all the same; it cannot be brought back, and the compensation says so.
func TestPlan_ATextTooLongForAReceiptIsReplaced(t *testing.T) {
	t.Parallel()
	o := newOffice(t)
	content, err := desk.Markdown(strings.Repeat("語", 450_000)) // 1.35 MB
	require.NoError(t, err)
	f, err := o.store.Create(t.Context(), "ada", desk.NewFile{Name: "long", Content: content})
	require.NoError(t, err)
	p := o.plan(t, call(desktool.UpdateMarkdown, `{"file": %q, "expectedVersion": 1, "text": "short"}`, f.ID))
	require.Equal(t, jobs.StatusExecuted, p.Run.Status, p.Run.ErrorMessage)
	require.JSONEq(t, `{"text": "short"}`, string(o.read(t, f.ID).Content))
	undo, err := o.client.CompensatePlan(t.Context(), p.Run.ID, "ada")
	require.True(t, errors.Is(err, jobs.ErrNothingToUndo), err)
	require.Equal(t, jobs.NotUndoneNoInverse, undo.Refused[0].Code)
}
