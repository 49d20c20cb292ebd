package browser

import (
	"context"
	"encoding/json"
	"slices"
	"sync"

	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/tracing"
	"github.com/chromedp/chromedp"
	"github.com/stretchr/testify/require"
)

// longestTasks are the tasks of a page's main thread while work is done, the longest first, in milliseconds. It is the
// processor's time and not the clock's, so that a busy machine makes them no longer.
func (b *tab) longestTasks(work func()) []float64 {
	b.t.Helper()
	ctx, cancel := context.WithTimeout(b.ctx, limit)
	defer cancel()
	type event struct {
		Name     string  `json:"name"`
		PID      int     `json:"pid"`
		TID      int     `json:"tid"`
		Thread   float64 `json:"tdur"`
		Category string  `json:"cat"`
	}
	var (
		mu     sync.Mutex
		events []event
	)
	complete := make(chan struct{})
	require.NoError(b.t, chromedp.ListenBrowser(ctx, func(ev any) {
		switch ev := ev.(type) {
		case *tracing.EventDataCollected:
			mu.Lock()
			defer mu.Unlock()
			for _, raw := range ev.Value {
				var e event
				if json.Unmarshal(raw, &e) == nil {
					events = append(events, e)
				}
			}
		case *tracing.EventTracingComplete:
			close(complete)
		}
	}))
	_, err := chromedp.CallBrowser(ctx, tracing.Start, tracing.StartParams{
		TraceConfig: &tracing.TraceConfig{IncludedCategories: []string{"toplevel", "blink.user_timing"}, ExcludedCategories: []string{"*"}},
	})
	require.NoError(b.t, err)
	b.run("performance.mark('weir-this-page')")
	work()
	_, err = chromedp.CallBrowser(ctx, tracing.End, cdp.Empty{})
	require.NoError(b.t, err)
	select {
	case <-complete:
	case <-ctx.Done():
		require.Fail(b.t, "no trace")
	}
	mu.Lock()
	defer mu.Unlock()
	at := slices.IndexFunc(events, func(e event) bool { return e.Name == "weir-this-page" })
	require.GreaterOrEqual(b.t, at, 0)
	var out []float64
	for _, e := range events {
		if e.PID == events[at].PID && e.TID == events[at].TID && e.Name == "ThreadControllerImpl::RunTask" {
			out = append(out, e.Thread/1000)
		}
	}
	require.NotEmpty(b.t, out)
	slices.Sort(out)
	slices.Reverse(out)
	return out
}
