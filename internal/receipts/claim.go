package receipts

import (
	"context"
	"fmt"

	"github.com/weirqueue/weir/internal/fencing"
)

// ManySteps, among what a run needs, says that it has more than one step: ClaimStarted starts none of them.
const ManySteps = "many_steps"

// Send is the step of a delivery of one message.
var Send = Step{Index: 0, Name: "send", Effect: AtLeastOnce}

const manySteps = "('" + ManySteps + "' = any(fenced.needs))"

// The claim of such a delivery starts its step. For a run's first owner the claim says so itself: there is no row until something
// goes otherwise (docs/adr/0015). Each further one writes a row. A step that is ok is never started again.
const startedAgain fencing.Rider = `
    insert into weir.receipt (run_id, step_index, step_name, effect, outcome, attempt)
    select fenced.id, @step_index::integer, @step_name, @effect, 'started', fenced.attempt from fenced
    where fenced.attempt > 1 and not ` + manySteps + `
    on conflict (run_id, step_index) do update
        set outcome = 'started', attempt = excluded.attempt, recorded_at = clock_timestamp()
        where receipt.outcome <> 'ok'`

// The statement's snapshot is older than what it writes itself, so this is what an earlier try left. A first claim does not
// look.
const outcomeBefore = `case when fenced.attempt > 1 then coalesce(
        (select t.outcome from weir.receipt t where t.run_id = fenced.id and t.step_index = @step_index::integer), '') else '' end`

var (
	claims       = map[string]*fencing.Statement{}
	claimStarted = fencing.Delivery.Transition("claim and start", fencing.Claim, fencing.ClaimScope, fencing.ClaimFinal(manySteps, outcomeBefore), startedAgain)
)

func init() {
	for _, m := range fencing.Machines {
		claims[m.Name] = m.Transition("claim", fencing.Claim, fencing.ClaimScope, fencing.ClaimFinal("false", "''"))
	}
}

// Claim makes the caller the owner of a run, if nobody is and it is due. ok is false when it matched no row.
func Claim(ctx context.Context, db fencing.DB, req fencing.ClaimRequest) (fencing.Claimed, bool, error) {
	stmt := claims[fencing.MachineOf(req.Kind).Name]
	return claim(ctx, db, stmt, req, req.Args())
}

// ClaimStarted is Claim of a delivery, whose step Send is started by it, in one statement. It is plain Claim for one that needs
// ManySteps.
func ClaimStarted(ctx context.Context, db fencing.DB, req fencing.ClaimRequest) (fencing.Claimed, bool, error) {
	return claim(ctx, db, claimStarted, req, sendArgs(req.Args()))
}

func sendArgs(args fencing.Args) fencing.Args {
	args["step_index"], args["step_name"], args["effect"] = Send.Index, Send.Name, string(Send.Effect)
	return args
}

func claim(ctx context.Context, db fencing.DB, stmt *fencing.Statement, req fencing.ClaimRequest, args fencing.Args) (fencing.Claimed, bool, error) {
	c, ok, err := fencing.ScanClaimed(db.QueryRow(ctx, stmt.SQL, stmt.Bind(args)...), req.Kind)
	if err != nil {
		return c, false, fmt.Errorf("claim run %s: %w", req.Run, err)
	}
	return c, ok, nil
}
