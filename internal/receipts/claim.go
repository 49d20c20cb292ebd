package receipts

import (
	"context"
	"fmt"

	"github.com/weirqueue/weir/internal/fencing"
)

// ManySteps, among what a run needs, says that it has more than one step: ClaimStarted starts none of them.
const ManySteps = "many_steps"

// The `started` receipt of a run with a single outside step is committed by the claim itself. A step that is ok is
// never started again. A run's first owner finds no receipt, since each has needed a token: its own is inserted without the
// search for one, which is a third of the price.
const (
	startedFirst fencing.Rider = `
    insert into weir.receipt (run_id, step_index, step_name, effect, outcome, attempt)
    select fenced.id, @step_index::integer, @step_name, @effect, 'started', 1 from fenced
    where fenced.attempt = 1 and not '` + ManySteps + `' = any(fenced.needs)`
	startedAgain fencing.Rider = `
    insert into weir.receipt (run_id, step_index, step_name, effect, outcome, attempt)
    select fenced.id, @step_index::integer, @step_name, @effect, 'started', fenced.attempt from fenced
    where fenced.attempt > 1 and not '` + ManySteps + `' = any(fenced.needs)
    on conflict (run_id, step_index) do update
        set outcome = 'started', attempt = excluded.attempt, recorded_at = clock_timestamp()
        where receipt.outcome <> 'ok'`
)

// The statement's snapshot is older than what it writes itself, so this is what an earlier try left. A first claim does not
// look.
const outcomeBefore = `case when fenced.attempt > 1 then coalesce(
        (select t.outcome from weir.receipt t where t.run_id = fenced.id and t.step_index = @step_index::integer), '') else '' end`

var claims, claimsStarted = map[string]*fencing.Statement{}, map[string]*fencing.Statement{}

func init() {
	for _, m := range fencing.Machines {
		claims[m.Name] = m.Transition("claim", fencing.Claim, fencing.ClaimScope, fencing.ClaimFinal("''"))
		claimsStarted[m.Name] = m.Transition("claim and start", fencing.Claim, fencing.ClaimScope, fencing.ClaimFinal(outcomeBefore), startedFirst, startedAgain)
	}
}

// Claim makes the caller the owner of a run, if nobody is and it is due. ok is false when it matched no row.
func Claim(ctx context.Context, db fencing.DB, req fencing.ClaimRequest) (fencing.Claimed, bool, error) {
	stmt := claims[fencing.MachineOf(req.Kind).Name]
	return claim(ctx, db, stmt, req, req.Args())
}

// ClaimStarted is Claim with the `started` receipt of the run's single step, in one statement. The step's effect is
// AtLeastOnce or Idempotent: a Reconciled step must not overwrite what another attempt started. It is plain Claim for a run
// that needs ManySteps.
func ClaimStarted(ctx context.Context, db fencing.DB, req fencing.ClaimRequest, step Step) (fencing.Claimed, bool, error) {
	args := req.Args()
	args["step_index"], args["step_name"], args["effect"] = step.Index, step.Name, string(step.Effect)
	return claim(ctx, db, claimsStarted[fencing.MachineOf(req.Kind).Name], req, args)
}

func claim(ctx context.Context, db fencing.DB, stmt *fencing.Statement, req fencing.ClaimRequest, args fencing.Args) (fencing.Claimed, bool, error) {
	c, ok, err := fencing.ScanClaimed(db.QueryRow(ctx, stmt.SQL, stmt.Bind(args)...))
	if err != nil {
		return c, false, fmt.Errorf("claim run %s: %w", req.Run, err)
	}
	return c, ok, nil
}
