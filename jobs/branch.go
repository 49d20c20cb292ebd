package jobs

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/reset"
)

// The names under which the built-in providers of branches are known.
const (
	ProviderNeon       = "neon"
	ProviderPGTemplate = "pgtemplate"
)

// MaxBranchBytes bounds the names of a branch, its target, its parent and its project.
const MaxBranchBytes = 200

// maxDatabaseBytes is what PostgreSQL keeps of a database's name: a longer one would silently be another's.
const maxDatabaseBytes = 63

// Branch is a database branch that may be reset.
type Branch struct {
	// Name is the application's own, unique, at most 200 bytes.
	Name string `json:"name"`
	// Provider is "neon", "pgtemplate", or the name of a provider that the fleet was given.
	Provider string `json:"provider"`
	// Project is the provider's project: needed for neon, empty for pgtemplate.
	Project string `json:"project,omitempty"`
	// Target is the provider's own name of the branch: neon's branch id, pgtemplate's database. No two branches have one.
	Target string `json:"target"`
	// Parent is what the branch is reset to: neon's branch id (empty: the parent that Neon knows), pgtemplate's template
	// database.
	Parent string `json:"parent,omitempty"`
	// Retention is how far back a point in time may lie. Zero leaves that to the provider.
	Retention time.Duration `json:"retention,omitempty"`
}

var (
	// ErrInFlight: the branch is being reset. The error is an *InFlightError.
	ErrInFlight = errors.New("jobs: a reset of the branch is in flight")
	// ErrNoBranch: no branch of that name is registered.
	ErrNoBranch = errors.New("jobs: no such branch is registered")
)

// InFlightError names the run that resets the branch.
type InFlightError struct {
	Branch string
	Run    RunID
}

func (e *InFlightError) Error() string {
	return fmt.Sprintf("jobs: branch %q is being reset by run %s", e.Branch, e.Run)
}

// Is makes it match ErrInFlight.
func (e *InFlightError) Is(target error) bool { return target == ErrInFlight }

var providerName = regexp.MustCompile(`^[a-z][a-z0-9_\-]{0,62}$`)

func (b Branch) validate() error {
	var faults []error
	text := func(field, s string, needed bool) {
		if err := validateText("Branch."+field, s, MaxBranchBytes); err != nil {
			faults = append(faults, err)
		} else if needed && strings.TrimSpace(s) == "" {
			faults = append(faults, invalid("Branch."+field, s, "not blank"))
		}
	}
	text("Name", b.Name, true)
	if !providerName.MatchString(b.Provider) {
		faults = append(faults, invalid("Branch.Provider", b.Provider, "a provider's name such as neon or pgtemplate"))
	}
	text("Project", b.Project, b.Provider == ProviderNeon)
	text("Target", b.Target, true)
	text("Parent", b.Parent, b.Provider == ProviderPGTemplate)
	if b.Parent != "" && b.Parent == b.Target {
		faults = append(faults, invalid("Branch.Parent", b.Parent, "another one than Branch.Target: a branch is not its own parent"))
	}
	if b.Retention < 0 {
		faults = append(faults, invalid("Branch.Retention", b.Retention.String(), "positive, or 0 to leave it to the provider"))
	}
	if b.Provider == ProviderPGTemplate {
		faults = append(faults, b.validateDatabases())
	}
	return errors.Join(faults...)
}

// validateDatabases keeps PostgreSQL from cutting a name into another's, and its own databases from being reset.
func (b Branch) validateDatabases() error {
	var faults []error
	for _, f := range [][2]string{{"Target", b.Target}, {"Parent", b.Parent}} {
		if len(f[1]) > maxDatabaseBytes && len(f[1]) <= MaxBranchBytes {
			faults = append(faults, invalid("Branch."+f[0], f[1], fmt.Sprintf("at most %d bytes, which is what PostgreSQL keeps of a name; it has %d", maxDatabaseBytes, len(f[1]))))
		}
	}
	switch b.Target {
	case "postgres", "template0", "template1":
		faults = append(faults, invalid("Branch.Target", b.Target, "a database of the application's, not one of PostgreSQL's own"))
	}
	if b.Project != "" {
		faults = append(faults, invalid("Branch.Project", b.Project, "empty for pgtemplate"))
	}
	return errors.Join(faults...)
}

const branchColumns = `name, provider, project, target, parent, coalesce(extract(epoch from retention)::float8, 0)`

func scanBranch(row pgx.CollectableRow) (Branch, error) {
	var (
		b       Branch
		seconds float64
	)
	err := row.Scan(&b.Name, &b.Provider, &b.Project, &b.Target, &b.Parent, &seconds)
	b.Retention = time.Duration(seconds * float64(time.Second))
	return b, err
}

var (
	insertBranch = fencing.Compile("insert branch", `
insert into weir.branch (name, provider, project, target, parent, retention)
values (@name, @provider, @project, @target, @parent, nullif(@retention::float8, 0) * interval '1 second')
on conflict do nothing returning name`)
	lockBranch = fencing.Compile("lock branch", `
select `+branchColumns+` from weir.branch where name = @name for update`)
	branchOfTarget = fencing.Compile("branch of a target", `
select name from weir.branch where provider = @provider and project = @project and target = @target and name <> @name`)
	updateBranch = fencing.Compile("update branch", `
update weir.branch set provider = @provider, project = @project, target = @target, parent = @parent,
    retention = nullif(@retention::float8, 0) * interval '1 second', updated_at = clock_timestamp()
where name = @name`)
	deleteBranch = fencing.Compile("delete branch", `delete from weir.branch where name = @name`)
	resetOf      = fencing.Compile("live reset of a branch", `
select id from weir.run where kind = 'branch_reset' and exclusive_key = @name
    and status in ('pending', 'queued', 'approved', 'running', 'executing', 'processing')`)
)

// RegisterBranch makes a branch known, or changes what is known of it: only a registered branch can be reset, and a
// provider touches no other. It is safe to repeat. While the branch is being reset its registration cannot change: an
// *InFlightError. A target that another branch has is an *InvalidError.
func (c *Client) RegisterBranch(ctx context.Context, b Branch) error {
	return c.inTx(ctx, func(tx pgx.Tx) error { return c.RegisterBranchTx(ctx, tx, b) })
}

// RegisterBranchTx is RegisterBranch in the caller's transaction. Several branches in one transaction are registered in
// one order everywhere, or two such transactions can deadlock.
func (c *Client) RegisterBranchTx(ctx context.Context, tx pgx.Tx, b Branch) error {
	if err := b.validate(); err != nil {
		return err
	}
	return registerBranch(ctx, tx, b)
}

func registerBranch(ctx context.Context, tx pgx.Tx, b Branch) error {
	args := fencing.Args{
		"name": b.Name, "provider": b.Provider, "project": b.Project, "target": b.Target, "parent": b.Parent,
		"retention": b.Retention.Seconds(),
	}
	var name string
	err := tx.QueryRow(ctx, insertBranch.SQL, insertBranch.Bind(args)...).Scan(&name)
	if err == nil {
		return nil
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("jobs: register branch %q: %w", b.Name, err)
	}
	old, err := lockRegistered(ctx, tx, b.Name)
	if err != nil && !errors.Is(err, ErrNoBranch) {
		return err
	}
	if err == nil && old == b {
		return nil
	}
	err = tx.QueryRow(ctx, branchOfTarget.SQL, branchOfTarget.Bind(args)...).Scan(&name)
	if err == nil {
		return invalid("Branch.Target", b.Target, fmt.Sprintf("one that no other branch has; %q has it", name))
	}
	if !errors.Is(err, pgx.ErrNoRows) {
		return fmt.Errorf("jobs: register branch %q: %w", b.Name, err)
	}
	if err := notInFlight(ctx, tx, b.Name); err != nil {
		return err
	}
	if old.Name == "" {
		return fmt.Errorf("jobs: register branch %q: it was removed this very moment; try again", b.Name)
	}
	if _, err := tx.Exec(ctx, updateBranch.SQL, updateBranch.Bind(args)...); err != nil {
		return fmt.Errorf("jobs: register branch %q: %w", b.Name, err)
	}
	return nil
}

// RemoveBranch takes a branch out of the register. Its runs stay. It returns ErrNoBranch when it is not there, and an
// *InFlightError while it is being reset.
func (c *Client) RemoveBranch(ctx context.Context, name string) error {
	if err := validateText("name", name, MaxBranchBytes); err != nil {
		return err
	}
	return c.inTx(ctx, func(tx pgx.Tx) error {
		if _, err := lockRegistered(ctx, tx, name); err != nil {
			return err
		}
		if err := notInFlight(ctx, tx, name); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, deleteBranch.SQL, deleteBranch.Bind(fencing.Args{"name": name})...); err != nil {
			return fmt.Errorf("jobs: remove branch %q: %w", name, err)
		}
		return nil
	})
}

func lockRegistered(ctx context.Context, tx pgx.Tx, name string) (Branch, error) {
	return oneBranch(ctx, tx, lockBranch, fencing.Args{"name": name})
}

func oneBranch(ctx context.Context, on fencing.DB, stmt *fencing.Statement, args fencing.Args) (Branch, error) {
	rows, err := on.Query(ctx, stmt.SQL, stmt.Bind(args)...)
	if err != nil {
		return Branch{}, fmt.Errorf("jobs: look up branch %q: %w", args["name"], err)
	}
	b, err := pgx.CollectExactlyOneRow(rows, scanBranch)
	if errors.Is(err, pgx.ErrNoRows) {
		return b, fmt.Errorf("branch %q: %w", args["name"], ErrNoBranch)
	}
	if err != nil {
		return b, fmt.Errorf("jobs: look up branch %q: %w", args["name"], err)
	}
	return b, nil
}

func notInFlight(ctx context.Context, tx pgx.Tx, name string) error {
	var run RunID
	err := tx.QueryRow(ctx, resetOf.SQL, resetOf.Bind(fencing.Args{"name": name})...).Scan(&run)
	switch {
	case err == nil:
		return &InFlightError{Branch: name, Run: run}
	case errors.Is(err, pgx.ErrNoRows):
		return nil
	}
	return fmt.Errorf("jobs: look for resets of branch %q: %w", name, err)
}

func (b Branch) payload(at *time.Time) reset.Payload {
	p := reset.Payload{Branch: b.Name, Provider: b.Provider, Project: b.Project, Target: b.Target, Parent: b.Parent}
	if at != nil {
		utc := at.UTC()
		p.PointInTime = &utc
	}
	return p
}
