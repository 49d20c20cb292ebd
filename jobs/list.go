package jobs

import (
	"context"
	"fmt"
	"strconv"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

const (
	defaultPageSize = 50
	maxPageSize     = 500
	maxFilterBytes  = 100
)

// Filter picks runs for List. The zero value picks the newest 50.
type Filter struct {
	// Kinds and Statuses; empty is all.
	Kinds    []string
	Statuses []Status
	// After continues a listing: the Next of the page before. Zero starts at the newest run.
	After RunID
	// Limit is how many runs a page has, 1 to 500. Zero is 50.
	Limit int
}

// Page is some runs, newest first.
type Page struct {
	Runs []*Run `json:"runs"`
	// Next continues the listing; zero when there is no more.
	Next RunID `json:"next,omitzero"`
}

var listRuns = fencing.Compile("list runs", `
select `+runColumns+` from weir.run r
where r.id < @before::uuid
    and (@all_kinds::boolean or r.kind = any(@kinds::text[]))
    and (@all_statuses::boolean or r.status = any(@statuses::text[]))
order by r.id desc limit @limit::int`)

// The walk down the primary key would pass every healthy run on the way to the few that ended badly, so those have an
// index of their own.
var listTrouble = fencing.Compile("list trouble", `
select `+runColumns+` from weir.run r
where r.status in ('failed', 'dead', 'canceled') and r.id < @before::uuid
    and (@all_kinds::boolean or r.kind = any(@kinds::text[])) and r.status = any(@statuses::text[])
order by r.id desc limit @limit::int`)

// List returns a page of runs, newest first. An unusable filter is an *InvalidError.
func (c *Client) List(ctx context.Context, f Filter) (*Page, error) {
	limit := f.Limit
	if limit == 0 {
		limit = defaultPageSize
	}
	if limit < 1 || limit > maxPageSize {
		return nil, invalid("Filter.Limit", strconv.Itoa(f.Limit), fmt.Sprintf("from 1 to %d, or 0 for %d", maxPageSize, defaultPageSize))
	}
	for i, kind := range f.Kinds {
		if err := validateText(fmt.Sprintf("Filter.Kinds[%d]", i), kind, maxFilterBytes); err != nil {
			return nil, err
		}
	}
	for i, status := range f.Statuses {
		if err := validateText(fmt.Sprintf("Filter.Statuses[%d]", i), string(status), maxFilterBytes); err != nil {
			return nil, err
		}
	}
	before := f.After
	if before == (RunID{}) {
		before = RunID(uuid.Max)
	}
	statuses := make([]string, len(f.Statuses))
	trouble := len(statuses) > 0
	for i, s := range f.Statuses {
		statuses[i] = string(s)
		trouble = trouble && (s == StatusFailed || s == StatusDead || s == "canceled")
	}
	kinds := f.Kinds
	if kinds == nil {
		kinds = []string{}
	}
	stmt := listRuns
	if trouble {
		stmt = listTrouble
	}
	rows, err := c.pool.Query(ctx, stmt.SQL, stmt.Bind(fencing.Args{
		"before": before.String(), "all_kinds": len(kinds) == 0, "kinds": kinds,
		"all_statuses": len(statuses) == 0, "statuses": statuses, "limit": limit + 1,
	})...)
	if err != nil {
		return nil, fmt.Errorf("jobs: list runs: %w", err)
	}
	runs, err := pgx.CollectRows(rows, scanRun)
	if err != nil {
		return nil, fmt.Errorf("jobs: list runs: %w", err)
	}
	page := &Page{Runs: runs}
	if len(runs) > limit {
		page.Runs = runs[:limit]
		page.Next = runs[limit-1].ID
	}
	return page, nil
}
