package receipts

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

// The receipt of the step that ends with the try, where there is something to say about it. It carries the owner's
// attempt, also where the transition raises it. That a step failed, which is that it surely had no effect, is known only
// of what this owner began: what another one started or left unknown stays so. All attempts from the claim on are the
// owner's own, since resolving an unknown COMMIT raises them.
const settle fencing.Rider = `
    insert into weir.receipt (run_id, step_index, step_name, effect, outcome, attempt, external_ref, output)
    select fenced.id, @step_index::integer, @step_name, @effect, @outcome, @attempt::bigint, @external_ref, @step_output from fenced
    where @outcome::text <> ''
    on conflict (run_id, step_index) do update
        set outcome = excluded.outcome, effect = excluded.effect, attempt = excluded.attempt, external_ref = excluded.external_ref,
            output = excluded.output, recorded_at = clock_timestamp()
        where receipt.outcome <> 'ok' and (excluded.outcome <> 'failed' or receipt.attempt >= @began::bigint
            or receipt.outcome not in ('started', 'unknown'))`

// A step that was started and surely did not happen leaves no trace.
const takeBack fencing.Rider = `
    delete from weir.receipt t using fenced
    where t.run_id = fenced.id and t.attempt >= @began::bigint and t.outcome = 'started'`

// CodePolling is the code of a snooze by which an owner comes back to look: a try that ended well, and no news.
const CodePolling = "polling"

const endedTry fencing.Rider = `
    insert into weir.ended_try (run_id, attempt, claimed_at, doorbell_id, owner, how, error_code, error)
    select fenced.id, @attempt::bigint, fenced.claimed_at, fenced.doorbell_id, @owner, @how, @code, @message from fenced
    where coalesce(@code, '') <> '` + CodePolling + `'
    on conflict (run_id, attempt) do nothing`

const (
	ownRun = "r.id = @run"
	// A cancellation is open to others too, so an owner's is fenced here.
	ownedRun = "r.id = @run and r.attempt = @attempt::bigint and r.lease_expires_at is not null"
	endFinal = `select fenced.status, fenced.attempt, fenced.failures, fenced.finished_at is not null,
    coalesce(extract(epoch from fenced.next_attempt_at - clock_timestamp())::float8, 0)
from fenced`
)

var ends = map[string]map[fencing.Event]*fencing.Statement{}

func init() {
	for _, m := range fencing.Machines {
		ends[m.Name] = map[fencing.Event]*fencing.Statement{
			fencing.Succeed: m.Transition("succeed", fencing.Succeed, ownRun, endFinal, settle),
			fencing.Refuse:  m.Transition("refuse", fencing.Refuse, ownRun, endFinal, settle, endedTry),
			fencing.FailTry: m.Transition("fail try", fencing.FailTry, ownRun, endFinal, settle, endedTry),
			fencing.Snooze:  m.Transition("snooze", fencing.Snooze, ownRun, endFinal, settle, endedTry),
			fencing.Release: m.Transition("release", fencing.Release, ownRun, endFinal, takeBack, endedTry),
			fencing.Cancel:  m.Transition("cancel own", fencing.Cancel, ownedRun, endFinal, settle, endedTry),
		}
	}
}

// End is how an owner gives its run away.
type End struct {
	Event   fencing.Event // Succeed, Refuse, FailTry, Snooze, Release, or Cancel: the owner saw that what was outside is over
	Run     uuid.UUID
	Kind    string
	Attempt int64
	// Began is the attempt of the claim, where the own attempt was raised since. 0 is Attempt.
	Began int64
	Owner string
	// Step and Outcome are the receipt that is settled in the same statement; an empty Outcome says nothing about the
	// step. Release takes an open `started` back instead.
	Step        Step
	Outcome     Outcome
	ExternalRef string
	StepOutput  json.RawMessage
	// Output is the run's, for Succeed.
	Output json.RawMessage
	// Code and Message say what went wrong; cleaned text.
	Code, Message string
	// Delay is how long after this write the run is due again, for FailTry and Snooze.
	Delay time.Duration
}

// runIsReceipt reports a delivery that went well at once: its run says that, and no row does (docs/adr/0015). A token that was
// raised since the first claim may have left a row.
func (e End) runIsReceipt() bool {
	return e.Kind == fencing.KindDelivery && e.Event == fencing.Succeed && e.Outcome == OK && e.Step == Send && e.Attempt == 1 &&
		len(e.StepOutput) == 0 && len(e.Output) == 0
}

// Ended is how the run stands after End.
type Ended struct {
	Status   fencing.Status
	Attempt  int64
	Failures int
	Terminal bool
	// DueIn is what is left until the run is due, by the database's clock.
	DueIn time.Duration
}

// Write gives the run away, if the caller still owns it. It returns ErrLeaseLost otherwise, and then has written
// nothing. It is one statement; with a pool as db it commits by itself.
func (e End) Write(ctx context.Context, db fencing.DB) (Ended, error) {
	stmt := ends[fencing.MachineOf(e.Kind).Name][e.Event]
	how := map[fencing.Event]string{fencing.Snooze: "snoozed", fencing.Release: "released", fencing.Cancel: "canceled"}[e.Event]
	if how == "" {
		how = "failed"
	}
	outcome := e.Outcome
	if e.runIsReceipt() {
		outcome = ""
	}
	var (
		ended Ended
		dueIn float64
	)
	err := db.QueryRow(ctx, stmt.SQL, stmt.Bind(fencing.Args{
		"run": e.Run, "attempt": e.Attempt, "began": cmp.Or(e.Began, e.Attempt), "owner": e.Owner, "how": how,
		"step_index": e.Step.Index, "step_name": e.Step.Name, "effect": string(e.Step.Effect), "outcome": string(outcome),
		"external_ref": nullText(e.ExternalRef), "step_output": nullJSON(e.StepOutput), "output": nullJSON(e.Output),
		"code": nullText(e.Code), "message": nullText(e.Message), "delay": e.Delay, "cancel_code": nullText(e.Code),
	})...).Scan(&ended.Status, &ended.Attempt, &ended.Failures, &ended.Terminal, &dueIn)
	if errors.Is(err, pgx.ErrNoRows) {
		return Ended{}, fencing.ErrLeaseLost
	}
	if err != nil {
		return Ended{}, fmt.Errorf("%s run %s: %w", e.Event, e.Run, err)
	}
	ended.DueIn = time.Duration(dueIn * float64(time.Second))
	return ended, nil
}

func nullText(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

func nullJSON(b json.RawMessage) *string {
	if len(b) == 0 {
		return nil
	}
	s := string(b)
	return &s
}
