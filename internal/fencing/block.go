package fencing

import (
	"context"
	"fmt"

	"github.com/google/uuid"
)

var block = Compile("block", `
update weir.run r set blocked_reason = @reason
where r.id = @run and r.status in ('pending', 'queued', 'approved', 'running', 'executing')
    and r.lease_expires_at is null and r.next_attempt_at <= clock_timestamp() and r.blocked_reason is distinct from @reason`)

// Block notes on a run that is due why a process did not claim it: it lacks something that the run needs. Nothing else
// changes, and the next claim clears it. A run that is owned, or not due, is left alone.
func Block(ctx context.Context, db DB, run uuid.UUID, reason string) error {
	if _, err := db.Exec(ctx, block.SQL, block.Bind(Args{"run": run, "reason": reason})...); err != nil {
		return fmt.Errorf("block run %s: %w", run, err)
	}
	return nil
}
