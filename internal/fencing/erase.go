package fencing

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

var (
	eraseRun = Compile("erase run", `
update weir.run set error_message = null, external_ref = null, output = null, metadata = '{}', tags = '{}'
where id = @run and finished_at is not null`)
	erasePayload = Compile("erase payload", `
update weir.payload set body = null, erased_at = clock_timestamp() where run_id = @run and body is not null`)
	eraseTries = Compile("erase tries", `update weir.ended_try set error = null where run_id = @run`)
)

// EraseLocked removes what a terminal run holds of persons: payload, outputs, texts of errors. Status, codes, digest
// and times stay, so the run and its key still answer. The caller holds the run's lock and has seen that it is terminal.
func EraseLocked(ctx context.Context, tx pgx.Tx, run uuid.UUID) error {
	for _, stmt := range []*Statement{eraseRun, erasePayload, eraseTries} {
		if _, err := tx.Exec(ctx, stmt.SQL, stmt.Bind(Args{"run": run})...); err != nil {
			return fmt.Errorf("%s %s: %w", stmt.Name, run, err)
		}
	}
	return nil
}
