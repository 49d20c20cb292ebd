package jobs_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/jobs"
)

// pay is a tool with arguments of every sort.
var pay = jobs.MustTool("pay", jobs.ToolConfig{
	Effect: jobs.Transactional,
	Schema: json.RawMessage(`{"type": "object", "additionalProperties": false, "required": ["to"],
		"properties": {"to": {"type": "string", "minLength": 1}, "cents": {"type": "integer", "minimum": 0}, "note": {"type": ["string", "null"]}}}`),
})

func planClient(t testing.TB, pool *pgxpool.Pool) *jobs.Client {
	t.Helper()
	client, err := jobs.NewClient(pool, &jobs.Config{Tools: []*jobs.Tool{pay}})
	require.NoError(t, err)
	return client
}

func planOf(args ...string) jobs.PlanParams {
	p := jobs.PlanParams{Title: "Pay Ada", Risk: jobs.RiskHigh, Owner: "ada", Rationale: "she asked for it"}
	for _, a := range args {
		p.Steps = append(p.Steps, jobs.PlanStep{Tool: "pay", Args: json.RawMessage(a)})
	}
	return p
}

func propose(t testing.TB, client *jobs.Client, p jobs.PlanParams) *jobs.Plan {
	t.Helper()
	res, err := client.ProposePlan(t.Context(), p, nil)
	require.NoError(t, err)
	plan, err := client.GetPlan(t.Context(), res.Run.ID)
	require.NoError(t, err)
	return plan
}

// What is wrong with a plan is said with its step and field, and nothing is written.
func TestPlan_BadInputIsRefusedNamingStepAndField(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := planClient(t, pool)
	good := `{"to": "ada"}`
	for name, c := range map[string]struct {
		plan  jobs.PlanParams
		field string
	}{
		"unknown tool": {func() jobs.PlanParams {
			p := planOf(good, good)
			p.Steps[1].Tool = "burn"
			return p
		}(), "Plan.Steps[1].Tool"},
		"off the schema":        {planOf(good, `{"to": "ada", "cents": -1}`), "Plan.Steps[1].Args.cents"},
		"unknown argument":      {planOf(`{"to": "ada", "sure": true}`), "Plan.Steps[0].Args"},
		"no arguments":          {planOf(""), "Plan.Steps[0].Args"},
		"null for arguments":    {planOf("null"), "Plan.Steps[0].Args"},
		"not JSON":              {planOf(`{"to": `), "Plan.Steps[0].Args"},
		"the same member twice": {planOf(`{"to": "ada", "to": "bob"}`), "Plan.Steps[0].Args"},
		"NUL":                   {planOf(`{"to": "a\u0000"}`), "Plan.Steps[0].Args"},
		"half a surrogate":      {planOf(`{"to": "a\ud800"}`), "Plan.Steps[0].Args"},
		"invalid UTF-8":         {planOf("{\"to\": \"\xff\"}"), "Plan.Steps[0].Args"},
		"a number without end":  {planOf(`{"to": "ada", "cents": 1e999999999}`), "Plan.Steps[0].Args"},
		"no steps":              {planOf(), "Plan.Steps"},
		"101 steps": {planOf(strings.Split(strings.TrimSuffix(strings.Repeat(good+"|", 101), "|"), "|")...),
			"Plan.Steps"},
		"over 1 MiB": {planOf(`{"to": "`+strings.Repeat("x", 600_000)+`"}`, `{"to": "`+strings.Repeat("x", 600_000)+`"}`), "Plan"},
		"no title": {func() jobs.PlanParams {
			p := planOf(good)
			p.Title = " "
			return p
		}(), "Plan.Title"},
		"no risk": {func() jobs.PlanParams {
			p := planOf(good)
			p.Risk = ""
			return p
		}(), "Plan.Risk"},
		"no owner": {func() jobs.PlanParams {
			p := planOf(good)
			p.Owner = ""
			return p
		}(), "Plan.Owner"},
		"a limit of no time": {func() jobs.PlanParams {
			p := planOf(good)
			p.ApprovalLimit = time.Millisecond
			return p
		}(), "Plan.ApprovalLimit"},
	} {
		_, err := client.ProposePlan(t.Context(), c.plan, nil)
		require.ErrorIs(t, err, jobs.ErrInvalid, name)
		var bad *jobs.InvalidError
		require.ErrorAs(t, err, &bad, name)
		require.Equal(t, c.field, bad.Field, name)
	}
	require.Zero(t, value[int](t, pool, "select count(*)::int from weir.run"))
}

// Integers above 2^53 keep every digit from the proposal on, and neither white space nor the order of members changes the
// digest; a value does (PL-05).
func TestPlan_NumbersKeepEveryDigitAndTheDigestIsCanonical(t *testing.T) {
	t.Parallel()
	client := planClient(t, pgtest.Pool(t))
	one := propose(t, client, planOf(`{"to": "ada", "cents": 9007199254740993123456789}`))
	require.Equal(t, `{"cents":9007199254740993123456789,"to":"ada"}`, string(one.Steps[0].Args))
	same := propose(t, client, planOf(" {\"cents\":\t9007199254740993123456789,\n\"to\":\"\\u0061da\"} "))
	require.Equal(t, one.Digest, same.Digest)
	for _, other := range []string{`{"to": "ada", "cents": 9007199254740993123456788}`, `{"to": "ada"}`, `{"to": "ada", "cents": 9007199254740993123456789, "note": null}`} {
		require.NotEqual(t, one.Digest, propose(t, client, planOf(other)).Digest, other)
	}
}

// An approval is of exactly the frozen bytes, and by somebody.
func TestPlan_ApprovalNeedsTheDigestAndAnIdentity(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := planClient(t, pool)
	p := propose(t, client, planOf(`{"to": "ada"}`))
	require.Equal(t, jobs.StatusPending, p.Run.Status)
	require.Equal(t, jobs.OutcomeNotRun, p.Steps[0].Outcome)
	for _, who := range []string{"", "  ", "a\x00", strings.Repeat("x", 201)} {
		_, err := client.ApprovePlan(t.Context(), p.Run.ID, p.Digest, who)
		require.ErrorIs(t, err, jobs.ErrInvalid, "%q", who)
		require.ErrorIs(t, client.RejectPlan(t.Context(), p.Run.ID, who, ""), jobs.ErrInvalid, "%q", who)
	}
	other := propose(t, client, planOf(`{"to": "bob"}`))
	for _, digest := range []string{"", other.Digest, strings.ToUpper(p.Digest), p.Digest[:10]} {
		_, err := client.ApprovePlan(t.Context(), p.Run.ID, digest, "grace")
		require.ErrorIs(t, err, jobs.ErrDigest, digest)
	}
	require.Equal(t, jobs.StatusPending, get(t, client, p.Run.ID).Status)
	require.Zero(t, value[int](t, pool, "select count(*)::int from river_job"))
	got, err := client.ApprovePlan(t.Context(), p.Run.ID, p.Digest, "grace")
	require.NoError(t, err)
	require.Equal(t, []any{jobs.StatusApproved, "approved", "grace"}, []any{got.Run.Status, got.Decision, got.DecidedBy})
	_, err = client.ApprovePlan(t.Context(), jobs.RunID(uuid.Must(uuid.NewV7())), p.Digest, "grace")
	require.ErrorIs(t, err, jobs.ErrNotFound)
}

// Twenty approvers and one approval: the others are answered by the record. After a rejection, an expiry or a cancellation
// an approval is refused with the state, and the other way round (PL-07).
func TestPlan_DecidedOnce(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := planClient(t, pool)
	p := propose(t, client, planOf(`{"to": "ada"}`))
	var approved, refused atomic.Int32
	inParallel(30, func(i int) {
		if i%3 == 1 {
			if err := client.RejectPlan(t.Context(), p.Run.ID, fmt.Sprint("no", i), "no"); errors.Is(err, jobs.ErrState) {
				refused.Add(1)
			}
			return
		}
		if got, err := client.ApprovePlan(t.Context(), p.Run.ID, p.Digest, fmt.Sprint("yes", i)); err == nil && got.Decision == "approved" {
			approved.Add(1)
		}
	})
	got, err := client.GetPlan(t.Context(), p.Run.ID)
	require.NoError(t, err)
	jobsRung := value[int](t, pool, "select count(*)::int from river_job")
	if got.Decision == "approved" {
		require.Equal(t, []int{20, 10, 1}, []int{int(approved.Load()), int(refused.Load()), jobsRung})
	} else {
		require.Equal(t, []int{0, 0, 0}, []int{int(approved.Load()), int(refused.Load()), jobsRung})
		require.Equal(t, jobs.StatusRejected, got.Run.Status)
	}

	for name, end := range map[string]func(id jobs.RunID){
		"rejected": func(id jobs.RunID) { require.NoError(t, client.RejectPlan(t.Context(), id, "grace", "too much")) },
		"canceled": func(id jobs.RunID) { require.NoError(t, client.CancelPlan(t.Context(), id)) },
		"expired": func(id jobs.RunID) {
			execSQL(t, pool, "update weir.run set expires_at = clock_timestamp() - interval '1 s' where id = $1", uuid.UUID(id))
		},
	} {
		p := propose(t, client, planOf(`{"to": "ada"}`))
		end(p.Run.ID)
		var state *jobs.StateError
		_, err := client.ApprovePlan(t.Context(), p.Run.ID, p.Digest, "grace")
		require.ErrorAs(t, err, &state, name)
		require.NotEmpty(t, state.Detail, name)
	}
}

// A plan that nobody decides expires, and so does an approval that nobody takes up; each counts from its own beginning.
func TestPlan_ExpiresUndecidedAndUntaken(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := planClient(t, pool)
	params := planOf(`{"to": "ada"}`)
	params.ApprovalLimit = 10 * time.Minute
	undecided, untaken, fresh := propose(t, client, params), propose(t, client, params), propose(t, client, params)
	execSQL(t, pool, "update weir.run set expires_at = clock_timestamp() + interval '1 min' where id = $1", uuid.UUID(untaken.Run.ID))
	got, err := client.ApprovePlan(t.Context(), untaken.Run.ID, untaken.Digest, "grace")
	require.NoError(t, err)
	require.InDelta(t, 600, time.Until(*got.ExpiresAt).Seconds(), 30, "the limit begins anew with the approval")
	for _, p := range []*jobs.Plan{undecided, untaken} {
		execSQL(t, pool, "update weir.run set expires_at = clock_timestamp() - interval '1 s' where id = $1", uuid.UUID(p.Run.ID))
	}
	// Before the sweep has been there, nobody takes it up either.
	_, ok, err := receipts.Claim(t.Context(), pool, fencing.ClaimRequest{
		Run: uuid.UUID(untaken.Run.ID), Kind: jobs.KindPlan, Owner: "w", Lease: time.Minute, StepTime: time.Minute, Offers: []string{pay.Need()},
	})
	require.NoError(t, err)
	require.False(t, ok)
	ended, err := fencing.ExpirePlans(t.Context(), pool, 10)
	require.NoError(t, err)
	require.Len(t, ended, 2)
	for _, p := range []*jobs.Plan{undecided, untaken} {
		require.Equal(t, jobs.StatusExpired, get(t, client, p.Run.ID).Status)
	}
	require.Equal(t, jobs.StatusPending, get(t, client, fresh.Run.ID).Status)
}

// Whoever reads a plan whose time is over sees that it has expired, as the row says from then on: also in a transaction that
// may not write. A row that somebody holds is not waited for, and the reader is told.
func TestPlan_ReaderEndsWhatIsOverdue(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := planClient(t, pool)
	overdue := func(approved bool) *jobs.Plan {
		p := propose(t, client, planOf(`{"to": "ada"}`))
		if approved {
			_, err := client.ApprovePlan(t.Context(), p.Run.ID, p.Digest, "grace")
			require.NoError(t, err)
		}
		execSQL(t, pool, "update weir.run set expires_at = clock_timestamp() - interval '1 s' where id = $1", uuid.UUID(p.Run.ID))
		return p
	}
	for _, approved := range []bool{false, true} {
		id := overdue(approved).Run.ID
		seen, err := client.GetPlan(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []any{jobs.StatusExpired, "expired", false}, []any{seen.Run.Status, seen.Run.ErrorCode, seen.Overdue})
		waited, err := client.WaitPlan(t.Context(), overdue(approved).Run.ID)
		require.NoError(t, err)
		require.Equal(t, jobs.StatusExpired, waited.Run.Status)
	}
	for _, level := range []pgx.TxIsoLevel{pgx.ReadCommitted, pgx.RepeatableRead} {
		id := overdue(false).Run.ID
		require.NoError(t, pgx.BeginTxFunc(t.Context(), pool, pgx.TxOptions{IsoLevel: level, AccessMode: pgx.ReadOnly}, func(tx pgx.Tx) error {
			seen, err := client.GetPlanTx(t.Context(), tx, id)
			require.NoError(t, err)
			require.Equal(t, level == pgx.RepeatableRead, seen.Overdue, "an old snapshot says at least that its time is over")
			return nil
		}))
		require.Equal(t, jobs.StatusExpired, get(t, client, id).Status)
	}
	id := overdue(false).Run.ID
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error {
		execSQL(t, tx, "select from weir.run where id = $1 for update", uuid.UUID(id))
		seen, err := client.GetPlan(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, []any{jobs.StatusPending, true}, []any{seen.Run.Status, seen.Overdue})
		return nil
	}))
	fresh := propose(t, client, planOf(`{"to": "ada"}`))
	require.Equal(t, jobs.StatusPending, fresh.Run.Status)
}

// A key answers with the plan that it made; another plan under it is refused.
func TestPlan_KeyAnswers(t *testing.T) {
	t.Parallel()
	client := planClient(t, pgtest.Pool(t))
	opts := &jobs.Opts{IdempotencyKey: "pay-7"}
	first, err := client.ProposePlan(t.Context(), planOf(`{"to": "ada"}`), opts)
	require.NoError(t, err)
	again, err := client.ProposePlan(t.Context(), planOf(`{ "to":"ada" }`), opts)
	require.NoError(t, err)
	require.Equal(t, []any{true, first.Run.ID}, []any{again.Existing, again.Run.ID})
	_, err = client.ProposePlan(t.Context(), planOf(`{"to": "bob"}`), opts)
	require.ErrorIs(t, err, jobs.ErrKeyReused)
}

// claimPlan takes a plan up as a worker does.
func claimPlan(t testing.TB, pool *pgxpool.Pool, client *jobs.Client, params jobs.PlanParams) (*jobs.Plan, fencing.Claimed) {
	t.Helper()
	p := propose(t, client, params)
	_, err := client.ApprovePlan(t.Context(), p.Run.ID, p.Digest, "grace")
	require.NoError(t, err)
	c, ok, err := receipts.Claim(t.Context(), pool, fencing.ClaimRequest{
		Run: uuid.UUID(p.Run.ID), Kind: jobs.KindPlan, Owner: "w", Lease: time.Minute, StepTime: time.Minute, Offers: []string{pay.Need()},
	})
	require.NoError(t, err)
	require.True(t, ok)
	return p, c
}

func stepFence(c fencing.Claimed, step int) receipts.StepFence {
	return receipts.StepFence{
		Run: c.Run, Kind: c.Kind, Attempt: c.Attempt, Lease: time.Minute, StepTime: time.Minute,
		Step: receipts.Step{Index: step, Name: "pay", Effect: receipts.Transactional},
	}
}

// A plan whose worker died is ended by the next read, also by one in a read-only transaction, as the sweep would end it;
// what the old owner does then is refused (PL-12, LF-05). A reader that finds the row locked says so and does not wait.
func TestPlan_ReaderHealsAndStaleOwnerWritesNothing(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := planClient(t, pool)
	for _, readOnly := range []bool{false, true} {
		p, c := claimPlan(t, pool, client, planOf(`{"to": "ada"}`, `{"to": "bob"}`))
		require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return stepFence(c, 0).Write(t.Context(), tx) }))
		execSQL(t, pool, "update weir.run set lease_expires_at = clock_timestamp() - interval '1 s' where id = $1", c.Run)

		holder := begin(t, pool, pgx.ReadCommitted)
		_, found, err := fencing.LockRun(t.Context(), holder, c.Run)
		require.NoError(t, err)
		require.True(t, found)
		seen, err := client.GetPlan(t.Context(), p.Run.ID)
		require.NoError(t, err)
		require.Equal(t, []any{jobs.StatusExecuting, true}, []any{seen.Run.Status, seen.Interrupted})
		require.NoError(t, holder.Rollback(t.Context()))

		read := func() *jobs.Plan {
			if !readOnly {
				got, err := client.GetPlan(t.Context(), p.Run.ID)
				require.NoError(t, err)
				return got
			}
			tx, err := pool.BeginTx(t.Context(), pgx.TxOptions{AccessMode: pgx.ReadOnly})
			require.NoError(t, err)
			defer func() { require.NoError(t, tx.Rollback(t.Context())) }()
			got, err := client.GetPlanTx(t.Context(), tx, p.Run.ID)
			require.NoError(t, err)
			return got
		}
		got := read()
		require.Equal(t, []any{jobs.StatusFailed, fencing.CodeInterrupted, false}, []any{got.Run.Status, got.Run.ErrorCode, got.Interrupted})
		require.Equal(t, []string{"ok", jobs.OutcomeNotRun}, []string{got.Steps[0].Outcome, got.Steps[1].Outcome})

		err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return stepFence(c, 1).Write(t.Context(), tx) })
		require.ErrorIs(t, err, fencing.ErrLeaseLost)
		require.Equal(t, 1, value[int](t, pool, "select count(*)::int from weir.receipt where run_id = $1", c.Run))
	}
}

// A plan that is to be resumed is taken up after its last receipt instead.
func TestPlan_ResumableGoesOn(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := planClient(t, pool)
	params := planOf(`{"to": "ada"}`, `{"to": "bob"}`)
	params.Resume = true
	p, c := claimPlan(t, pool, client, params)
	execSQL(t, pool, "update weir.run set lease_expires_at = clock_timestamp() - interval '1 s' where id = $1", c.Run)
	got, err := client.GetPlan(t.Context(), p.Run.ID)
	require.NoError(t, err)
	require.Equal(t, []any{jobs.StatusExecuting, false, 1}, []any{got.Run.Status, got.Interrupted, got.Run.Reaps})
	require.NotNil(t, got.Run.NextAttemptAt)
}

// Deleting a plan takes everything of it along: no receipt of its is there for whoever comes after it (PL-03).
func TestPlan_NothingIsLeftOfADeletedOne(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := planClient(t, pool)
	p, c := claimPlan(t, pool, client, planOf(`{"to": "ada"}`))
	f := stepFence(c, 0)
	f.Last = true
	require.NoError(t, pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return f.Write(t.Context(), tx) }))
	got, err := client.ApprovePlan(t.Context(), p.Run.ID, p.Digest, "somebody else")
	require.NoError(t, err)
	require.Equal(t, []any{jobs.StatusExecuted, "grace", "ok"}, []any{got.Run.Status, got.DecidedBy, got.Steps[0].Outcome}, "answered from the receipts")
	execSQL(t, pool, "delete from weir.run where id = $1", c.Run)
	for _, table := range []string{"plan", "receipt", "payload", "run"} {
		require.Zero(t, value[int](t, pool, "select count(*)::int from weir."+table), table)
	}
}
