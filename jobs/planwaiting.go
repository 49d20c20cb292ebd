package jobs

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

// WaitingPlan is a plan that waits for an approval, without its steps.
type WaitingPlan struct {
	ID         RunID     `json:"id"`
	Title      string    `json:"title"`
	Risk       Risk      `json:"risk"`
	Owner      string    `json:"owner"`
	ProposedBy string    `json:"proposed_by,omitempty"`
	Steps      int       `json:"steps"`
	CreatedAt  time.Time `json:"created_at"`
	ExpiresAt  time.Time `json:"expires_at"`
}

// The order is that of run_expiry_idx.
var waitingPlans = fencing.Compile("waiting plans", `
select w.id::text, f.title, f.risk, f.owner, coalesce(p.proposed_by, ''), json_array_length(f.steps), w.created_at, w.expires_at
from (
    select r.id, r.created_at, r.expires_at from weir.run r
    where r.kind = 'plan' and r.status = 'pending' and r.expires_at > (select clock_timestamp())
    order by r.expires_at, r.id limit @limit::int
) w join weir.plan p on p.run_id = w.id join weir.payload y on y.run_id = w.id
cross join lateral json_to_record(convert_from(y.body, 'UTF8')::json) as f(title text, risk text, owner text, steps json)
order by w.expires_at, w.id`)

// WaitingPlans lists the plans that wait for an approval, those first whose time to decide ends first: 1 to 500 of them; 0
// is 50. GetPlan has what their steps are, and the digest to approve. It is empty, and no error, when none waits.
func (c *Client) WaitingPlans(ctx context.Context, limit int) ([]WaitingPlan, error) {
	if limit == 0 {
		limit = defaultPageSize
	}
	if limit < 1 || limit > maxPageSize {
		return nil, invalid("limit", strconv.Itoa(limit), fmt.Sprintf("from 1 to %d, or 0 for %d", maxPageSize, defaultPageSize))
	}
	rows, err := c.pool.Query(ctx, waitingPlans.SQL, waitingPlans.Bind(fencing.Args{"limit": limit})...)
	if err != nil {
		return nil, fmt.Errorf("jobs: list plans that wait: %w", err)
	}
	plans, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (p WaitingPlan, err error) {
		var id string
		if err = row.Scan(&id, &p.Title, &p.Risk, &p.Owner, &p.ProposedBy, &p.Steps, &p.CreatedAt, &p.ExpiresAt); err == nil {
			p.ID, err = ParseRunID(id)
		}
		return p, err
	})
	if err != nil {
		return nil, fmt.Errorf("jobs: list plans that wait: %w", err)
	}
	return plans, nil
}
