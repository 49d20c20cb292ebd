package jobs

import (
	"context"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

var (
	// Without a limit it lists all. No name is empty, so that all are after the empty one.
	listBranches = fencing.Compile("list branches", `
select `+branchColumns+` from weir.branch where name > @after::text order by name limit @limit::bigint`)
	readBranch = fencing.Compile("read branch", `select `+branchColumns+` from weir.branch where name = @name::text`)
	// One step down an index for each branch.
	latestResets = fencing.Compile("latest resets", `
select b.name, `+runColumns+` from unnest(@names::text[]) as b(name) cross join lateral (
    select * from weir.run x where x.kind = 'branch_reset' and x.exclusive_key = b.name
    order by x.exclusive_key desc, x.id desc limit 1
) r`)
)

// Branches lists all that is registered, by name. ListBranches lists a page of them.
func (c *Client) Branches(ctx context.Context) ([]Branch, error) {
	return c.branchesAfter(ctx, "", nil)
}

// BranchFilter picks branches for ListBranches. The zero value picks the first 50.
type BranchFilter struct {
	// After continues a listing: the Next of the page before, or any name. Empty starts at the first.
	After string
	// Limit is how many branches a page has, 1 to 500. Zero is 50.
	Limit int
}

// BranchPage is some branches, by name.
type BranchPage struct {
	Branches []BranchStanding `json:"branches"`
	// Next continues the listing; empty when there is no more.
	Next string `json:"next,omitempty"`
}

// BranchStanding is a branch with its newest reset, which may be under way; nil when it has none.
type BranchStanding struct {
	Branch
	Last *Run `json:"last,omitempty"`
}

// ListBranches returns a page of branches, by name, in two statements whatever its size. An unusable filter is an
// *InvalidError. A branch that is registered or removed while somebody goes from page to page moves no other one from
// its page.
func (c *Client) ListBranches(ctx context.Context, f BranchFilter) (*BranchPage, error) {
	limit := f.Limit
	if limit == 0 {
		limit = defaultPageSize
	}
	if limit < 1 || limit > maxPageSize {
		return nil, invalid("BranchFilter.Limit", strconv.Itoa(f.Limit), fmt.Sprintf("from 1 to %d, or 0 for %d", maxPageSize, defaultPageSize))
	}
	if err := validateText("BranchFilter.After", f.After, MaxBranchBytes); err != nil {
		return nil, err
	}
	list, err := c.branchesAfter(ctx, f.After, limit+1)
	if err != nil {
		return nil, err
	}
	page := &BranchPage{}
	if len(list) > limit {
		list = list[:limit]
		page.Next = list[limit-1].Name
	}
	names := make([]string, len(list))
	for i, b := range list {
		names[i] = b.Name
	}
	last, err := c.latestResets(ctx, names)
	if err != nil {
		return nil, err
	}
	page.Branches = make([]BranchStanding, len(list))
	for i, b := range list {
		page.Branches[i] = BranchStanding{b, last[b.Name]}
	}
	return page, nil
}

// GetBranch is a registered branch with its newest reset. It returns ErrNoBranch when it is not there.
func (c *Client) GetBranch(ctx context.Context, name string) (*BranchStanding, error) {
	if err := validateText("name", name, MaxBranchBytes); err != nil {
		return nil, err
	}
	b, err := oneBranch(ctx, c.pool, readBranch, fencing.Args{"name": name})
	if err != nil {
		return nil, err
	}
	last, err := c.latestResets(ctx, []string{name})
	if err != nil {
		return nil, err
	}
	return &BranchStanding{b, last[name]}, nil
}

// branchesAfter lists branches by name; limit is an int, or nil for all.
func (c *Client) branchesAfter(ctx context.Context, after string, limit any) ([]Branch, error) {
	rows, err := c.pool.Query(ctx, listBranches.SQL, listBranches.Bind(fencing.Args{"after": after, "limit": limit})...)
	if err != nil {
		return nil, fmt.Errorf("jobs: list branches: %w", err)
	}
	list, err := pgx.CollectRows(rows, scanBranch)
	if err != nil {
		return nil, fmt.Errorf("jobs: list branches: %w", err)
	}
	return list, nil
}

// latestResets is the newest reset of each of the branches that has one, by the branch's name.
func (c *Client) latestResets(ctx context.Context, names []string) (map[string]*Run, error) {
	rows, err := c.pool.Query(ctx, latestResets.SQL, latestResets.Bind(fencing.Args{"names": names})...)
	if err != nil {
		return nil, fmt.Errorf("jobs: latest resets: %w", err)
	}
	defer rows.Close()
	out := map[string]*Run{}
	for rows.Next() {
		named := &namedRow{CollectableRow: rows}
		run, err := scanRun(named)
		if err != nil {
			return nil, fmt.Errorf("jobs: latest resets: %w", err)
		}
		out[named.name] = run
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("jobs: latest resets: %w", err)
	}
	return out, nil
}

// namedRow is a run's row with a name in front of it.
type namedRow struct {
	pgx.CollectableRow
	name string
}

// Scan reads the name, and the rest into dest.
func (r *namedRow) Scan(dest ...any) error {
	return r.CollectableRow.Scan(append([]any{&r.name}, dest...)...)
}
