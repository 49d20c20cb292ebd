package neon_test

import (
	"context"
	"fmt"
	"log/slog"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/branch"
)

// The provider's log shows one restore a reset, whatever it does with its answers: drops them after applying, is late,
// locked, overloaded, failing, retrying by itself, and says words that nobody knows (BR-01, BR-02, BR-03, BR-07).
func TestFleet_OneRestoreUnderEveryFault(t *testing.T) {
	t.Parallel()
	times := func(n int, do func(w http.ResponseWriter, r *http.Request) bool) func(http.ResponseWriter, *http.Request) bool {
		var count atomic.Int64
		return func(w http.ResponseWriter, r *http.Request) bool {
			return count.Add(1) <= int64(n) && do(w, r)
		}
	}
	posts := func(status int) func(http.ResponseWriter, *http.Request) bool {
		return func(w http.ResponseWriter, r *http.Request) bool {
			if r.Method == http.MethodPost {
				fail(w, status, "", "not now")
			}
			return r.Method == http.MethodPost
		}
	}
	for name, c := range map[string]struct {
		words           []string
		before, applied func(http.ResponseWriter, *http.Request) bool
		status          jobs.Status
		code            string
		restores        int
	}{
		"plain":                 {status: jobs.StatusSucceeded, restores: 1},
		"answer lost":           {applied: func(w http.ResponseWriter, _ *http.Request) bool { return hangUp(w) }, status: jobs.StatusSucceeded, restores: 1},
		"502 after applying":    {applied: posts(502), status: jobs.StatusSucceeded, restores: 1},
		"answer late":           {applied: func(http.ResponseWriter, *http.Request) bool { time.Sleep(1500 * time.Millisecond); return false }, status: jobs.StatusSucceeded, restores: 1},
		"423 twice":             {before: times(8, posts(423)), status: jobs.StatusSucceeded, restores: 1},
		"502 before applying":   {before: posts(502), status: jobs.StatusFailed, code: "outcome_unknown"},
		"hangs up, not applied": {before: func(w http.ResponseWriter, r *http.Request) bool { return r.Method == http.MethodPost && hangUp(w) }, status: jobs.StatusFailed, code: "outcome_unknown"},
		"refused":               {before: posts(400), status: jobs.StatusFailed, code: "neon_400"},
		"fails and recovers":    {words: []string{"running", "failed", "running", "pondering", "finished"}, status: jobs.StatusSucceeded, restores: 1},
		"skipped":               {words: []string{"skipped"}, status: jobs.StatusFailed, code: "operation_skipped", restores: 1},
		"polls fail": {before: times(30, func(w http.ResponseWriter, r *http.Request) bool {
			bad := strings.Contains(r.URL.Path, "/operations/")
			if bad {
				fail(w, 500, "", "oops")
			}
			return bad
		}), status: jobs.StatusSucceeded, restores: 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			f := newFake(t)
			f.before, f.applied = c.before, c.applied
			if c.words != nil {
				f.words = c.words
			}
			pool := pgtest.Pool(t)
			client, err := jobs.NewClient(pool, nil)
			require.NoError(t, err)
			fleet, err := workers.New(pool, &workers.Config{
				Branches: workers.BranchConfig{
					Providers: map[string]branch.Provider{"neon": provider(t, f)},
					Lease:     10 * time.Second, StepTime: 8 * time.Second, PollFirst: 20 * time.Millisecond, PollMax: 40 * time.Millisecond, AskWait: time.Second,
				},
				ReaperInterval: 200 * time.Millisecond, FetchPollInterval: 50 * time.Millisecond, Logger: slog.New(slog.DiscardHandler),
			})
			require.NoError(t, err)
			ctx, stop := context.WithCancel(context.Background())
			done := make(chan error, 1)
			go func() { done <- fleet.Run(ctx) }()
			defer func() {
				stop()
				require.NoError(t, <-done)
			}()
			require.NoError(t, client.RegisterBranch(ctx, jobs.Branch{Name: "dev", Provider: "neon", Project: "p1", Target: "br-dev"}))
			res, err := client.ResetBranch(ctx, jobs.Reset{Branch: "dev"}, nil)
			require.NoError(t, err)
			wait, cancel := context.WithTimeout(ctx, time.Minute)
			defer cancel()
			run, err := client.Wait(wait, res.Run.ID)
			require.NoError(t, err, fmt.Sprintf("%+v", run))
			require.Equal(t, c.status, run.Status, run.ErrorMessage)
			require.Equal(t, c.code, run.ErrorCode, run.ErrorMessage)
			require.Equal(t, c.restores, f.restored())
			if c.status == jobs.StatusSucceeded {
				require.Zero(t, run.Failures)
			}
		})
	}
}
