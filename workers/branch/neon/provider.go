package neon

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/weirqueue/weir/workers/branch"
)

// Provider resets branches of Neon. It is safe for concurrent use. When Neon asks one of its callers to wait, all of them
// do.
type Provider struct{ wire *wire }

var _ branch.Provider = (*Provider)(nil)

// New makes a provider. It does not connect. The error matches ErrInvalidConfig.
func New(cfg Config) (*Provider, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Provider{wire: newWire(cfg)}, nil
}

type apiBranch struct {
	ID        string    `json:"id"`
	Name      string    `json:"name"`
	ParentID  string    `json:"parent_id"`
	CreatedAt time.Time `json:"created_at"`
}

type apiOperation struct {
	ID        string    `json:"id"`
	BranchID  string    `json:"branch_id"`
	Action    string    `json:"action"`
	Status    string    `json:"status"`
	Error     string    `json:"error"`
	CreatedAt time.Time `json:"created_at"`
}

type restoreRequest struct {
	Source    string `json:"source_branch_id"`
	Timestamp string `json:"source_timestamp,omitempty"`
	Preserve  string `json:"preserve_under_name"`
}

func projectPath(r branch.Reset) string { return "/projects/" + url.PathEscape(r.Project) }

func branchPath(r branch.Reset) string {
	return projectPath(r) + "/branches/" + url.PathEscape(r.Target)
}

// backupName is what the branch's previous state is kept under: the proof that this run's call was applied.
func backupName(r branch.Reset) string { return "weir-" + r.RunID }

// Issue restores the branch from its parent, or, for a branch without one, from its own past.
func (p *Provider) Issue(ctx context.Context, r branch.Reset) ([]branch.Operation, error) {
	// Everything before the one call that changes something only looks: what fails there has changed nothing.
	source, err := p.source(ctx, r)
	if err != nil {
		return nil, lookOnly(err)
	}
	ops, found, err := p.Find(ctx, r)
	if err != nil || found {
		return ops, lookOnly(err)
	}
	if err := r.StillMine(ctx); err != nil {
		return nil, branch.Later(0, "not_begun", err)
	}
	request := restoreRequest{Source: source, Preserve: backupName(r)}
	if r.PointInTime != nil {
		request.Timestamp = r.PointInTime.UTC().Format(time.RFC3339Nano)
	}
	var answer struct {
		Operations []apiOperation `json:"operations"`
	}
	err = p.wire.do(ctx, http.MethodPost, branchPath(r)+"/restore", request, &answer)
	var refused *answerError
	switch {
	case err == nil && (len(answer.Operations) == 0 || slices.ContainsFunc(answer.Operations, func(o apiOperation) bool { return o.ID == "" })):
		return nil, errors.New("the answer of Neon names no operations") // perhaps somebody between us; Find will say
	case err == nil:
		return operations(answer.Operations), nil
	case !errors.As(err, &refused) || classified(err) || refused.status/100 != 4:
		return nil, err
	}
	// Neon said no. Unless the backup is there: then a call of this run was applied, and the no was to its double.
	ops, found, ferr := p.Find(ctx, r)
	switch {
	case ferr != nil:
		return nil, fmt.Errorf("%s, and it could not be asked about the backup: %s", err.Error(), ferr.Error())
	case found:
		return ops, nil
	case refused.status == http.StatusConflict:
		return nil, err // perhaps with a call that is still under way
	}
	return nil, branch.Refused("neon_"+strconv.Itoa(refused.status), err)
}

func classified(err error) bool {
	var c *branch.Error
	return errors.As(err, &c)
}

// lookOnly classifies the failure of a call that changes nothing.
func lookOnly(err error) error {
	if err == nil || classified(err) {
		return err
	}
	return branch.Later(0, "neon_look", err)
}

// source is the branch to restore from.
func (p *Provider) source(ctx context.Context, r branch.Reset) (string, error) {
	var answer struct {
		Branch apiBranch `json:"branch"`
	}
	err := p.wire.do(ctx, http.MethodGet, branchPath(r), nil, &answer)
	var refused *answerError
	switch {
	case errors.As(err, &refused) && !classified(err) && refused.status/100 == 4:
		return "", branch.Refused("neon_"+strconv.Itoa(refused.status), fmt.Errorf("branch %s of project %s: %w", r.Target, r.Project, err))
	case err != nil:
		return "", err
	case r.Parent == r.Target:
		return "", branch.Refused("own_parent", errors.New("a branch is not its own parent"))
	case r.Parent != "":
		return r.Parent, nil
	case answer.Branch.ParentID != "":
		return answer.Branch.ParentID, nil
	case r.PointInTime != nil:
		return r.Target, nil // a root branch has only its own past
	}
	return "", branch.Refused("no_parent", errors.New("the branch has no parent: it can only be reset to a point in time of its own"))
}

// Find looks for the backup that this run's call makes, and for the operations that began with it.
func (p *Provider) Find(ctx context.Context, r branch.Reset) ([]branch.Operation, bool, error) {
	backup, err := p.backup(ctx, r)
	if err != nil || backup.ID == "" {
		return nil, false, err
	}
	var (
		ours   []apiOperation
		cursor string
	)
	for {
		var page struct {
			Operations []apiOperation `json:"operations"`
			Pagination struct {
				Cursor string `json:"cursor"`
			} `json:"pagination"`
		}
		query := url.Values{"limit": {"1000"}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		if err := p.wire.do(ctx, http.MethodGet, projectPath(r)+"/operations?"+query.Encode(), nil, &page); err != nil {
			return nil, false, err
		}
		older := false
		for _, o := range page.Operations { // newest first
			switch {
			case o.CreatedAt.Before(backup.CreatedAt.Add(-justBefore)):
				older = true
			case o.CreatedAt.Before(backup.CreatedAt.Add(sameCall)) && (o.BranchID == r.Target || o.BranchID == backup.ID):
				ours = append(ours, o)
			}
		}
		if older || len(page.Operations) == 0 || page.Pagination.Cursor == "" || page.Pagination.Cursor == cursor {
			// A backup without operations: Neon has not written them yet, or not kept them.
			return operations(ours), len(ours) > 0, nil
		}
		cursor = page.Pagination.Cursor
	}
}

// The operations of a call are created, by Neon's own clock, at about the time of its backup. Those of an earlier reset
// are final before another one begins.
const (
	justBefore = time.Second
	sameCall   = 5 * time.Second
)

func (p *Provider) backup(ctx context.Context, r branch.Reset) (apiBranch, error) {
	cursor := ""
	for {
		var page struct {
			Branches   []apiBranch `json:"branches"`
			Pagination struct {
				Next   string `json:"next"`
				Cursor string `json:"cursor"`
			} `json:"pagination"`
		}
		query := url.Values{"search": {backupName(r)}}
		if cursor != "" {
			query.Set("cursor", cursor)
		}
		if err := p.wire.do(ctx, http.MethodGet, projectPath(r)+"/branches?"+query.Encode(), nil, &page); err != nil {
			return apiBranch{}, err
		}
		for _, b := range page.Branches {
			if b.Name == backupName(r) {
				return b, nil
			}
		}
		next := page.Pagination.Next
		if next == "" {
			next = page.Pagination.Cursor
		}
		if next == "" || next == cursor || len(page.Branches) == 0 {
			return apiBranch{}, nil
		}
		cursor = next
	}
}

// Poll asks for one operation.
func (p *Provider) Poll(ctx context.Context, r branch.Reset, op branch.Operation) (branch.Operation, error) {
	var answer struct {
		Operation apiOperation `json:"operation"`
	}
	err := p.wire.do(ctx, http.MethodGet, projectPath(r)+"/operations/"+url.PathEscape(op.ID), nil, &answer)
	var refused *answerError
	if errors.As(err, &refused) && !classified(err) && refused.status == http.StatusNotFound {
		return op, branch.Gone("neon_404", err)
	}
	if err != nil {
		return op, err
	}
	if answer.Operation.ID != op.ID {
		return op, errors.New("the answer of Neon is not about the operation")
	}
	return operation(answer.Operation), nil
}

// Cancel is not in Neon's API.
func (p *Provider) Cancel(context.Context, branch.Reset, []branch.Operation) error {
	return branch.ErrNotCancelable
}

func operations(list []apiOperation) []branch.Operation {
	out := make([]branch.Operation, len(list))
	for i, o := range list {
		out[i] = operation(o)
	}
	return out
}

// states are Neon's words. What is failed or in error may be tried again by Neon itself.
var states = map[string]branch.State{
	"scheduling": branch.Running, "running": branch.Running, "cancelling": branch.Running,
	"failed": branch.Retrying, "error": branch.Retrying,
	"finished": branch.Finished, "skipped": branch.Skipped, "cancelled": branch.Canceled,
}

func operation(o apiOperation) branch.Operation {
	state, known := states[o.Status]
	if !known {
		state = branch.Unheard
	}
	return branch.Operation{ID: o.ID, Action: o.Action, Status: o.Status, State: state, Error: o.Error}
}
