package doorbell

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

// Canceled finds the doorbells that somebody cancelled in River, by its client or its UI, so that their runs can be
// canceled too, also those that are due only tomorrow. It is for one goroutine.
type Canceled struct {
	db    fencing.DB
	after struct {
		at  time.Time
		job int64
	}
	find *fencing.Statement
}

// cancelledPage is a literal in the statement, and the lookup of the run is kept one, for the reasons of the sweep's page.
const cancelledPage = 1000

// NewCanceled makes a finder that reads at most 1,000 jobs a call. Whoever inserts into River may have written anything
// into the arguments, so they are read as a run id only where they look like one.
func NewCanceled(db fencing.DB, schema string) *Canceled {
	return &Canceled{db: db, find: fencing.Build("cancelled doorbells", `
with j as (
    select id, finalized_at, case when kind like 'weir\_%' and metadata ? 'cancel_attempted_at'
        and args ->> 'run_id' ~ '^[0-9a-fA-F]{8}-([0-9a-fA-F]{4}-){3}[0-9a-fA-F]{12}$' then (args ->> 'run_id')::uuid end as run
    from `+Table(schema)+`
    where state = 'cancelled' and finalized_at is not null and (finalized_at, id) > (@after_at::timestamptz, @after_job::bigint)
    order by finalized_at, id limit `+strconv.Itoa(cancelledPage)+`
)
select j.id, j.finalized_at, r.id
from j left join lateral (
    select id from weir.run r where r.id = j.run and r.doorbell_id = j.id and r.finished_at is null offset 0
) r on true
order by j.finalized_at, j.id`)}
}

// Next returns live runs whose doorbell was cancelled, from the next page of cancelled jobs; after the last page it
// starts again.
func (c *Canceled) Next(ctx context.Context) ([]uuid.UUID, error) {
	after := c.after.at
	if after.IsZero() {
		after = time.Unix(0, 0)
	}
	rows, err := c.db.Query(ctx, c.find.SQL, c.find.Bind(fencing.Args{"after_at": after, "after_job": c.after.job})...)
	if err != nil {
		return nil, fmt.Errorf("look for cancelled doorbells: %w", err)
	}
	var (
		runs []uuid.UUID
		run  uuid.NullUUID
		read int
	)
	if _, err := pgx.ForEachRow(rows, []any{&c.after.job, &c.after.at, &run}, func() error {
		read++
		if run.Valid {
			runs = append(runs, run.UUID)
		}
		return nil
	}); err != nil {
		return nil, fmt.Errorf("look for cancelled doorbells: %w", err)
	}
	if read < cancelledPage {
		c.after.at, c.after.job = time.Time{}, 0
	}
	return runs, nil
}
