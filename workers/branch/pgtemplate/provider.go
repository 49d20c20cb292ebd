package pgtemplate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/workers/branch"
)

// Provider resets branches of one server. It is safe for concurrent use, and holds no connection between calls.
type Provider struct {
	cfg       Config
	conn      *pgx.ConnConfig
	protected []string
	stage     func(name string) // for tests
}

var _ branch.Provider = (*Provider)(nil)

// New makes a provider. It does not connect. The error matches ErrInvalidConfig.
func New(cfg Config) (*Provider, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	conn, err := pgx.ParseConfig(cfg.URL)
	if err != nil {
		return nil, fmt.Errorf("%w: Config.URL cannot be read", ErrInvalidConfig)
	}
	p := &Provider{cfg: cfg, conn: conn}
	p.protected = append([]string{"postgres", "template0", "template1", conn.Database}, cfg.Protected...)
	return p, nil
}

func (p *Provider) at(stage string) {
	if p.stage != nil {
		p.stage(stage)
	}
}

func done(r branch.Reset, note string) []branch.Operation {
	return []branch.Operation{{ID: "swap-" + r.RunID, Action: "copy_and_swap", Status: "finished", State: branch.Finished, Error: note}}
}

// Issue copies the parent and swaps the copy with the branch. It returns when that is done.
func (p *Provider) Issue(ctx context.Context, r branch.Reset) ([]branch.Operation, error) {
	if err := p.check(r); err != nil {
		return nil, err
	}
	fresh, err := beside(r, suffixNew)
	if err != nil {
		return nil, branch.Refused("bad_run", err)
	}
	s, err := p.open(ctx, r)
	if err != nil {
		return nil, err
	}
	defer s.end()
	target, err := s.survey(ctx)
	if err != nil {
		return nil, err
	}
	if target.mark.Run == r.RunID {
		return done(r, note(s.tidy(ctx))), nil
	}
	p.at("tidy")
	if err := s.tidy(ctx); err != nil {
		return nil, branch.Later(0, "pg_leftovers", err)
	}
	p.at("create")
	if err := s.copyParent(ctx, fresh, target.owner); err != nil {
		return nil, err
	}
	p.at("mark")
	if _, err := s.Exec(ctx, "comment on database "+quote(fresh)+" is "+literal(markOf(r).text())); err != nil {
		return nil, s.giveUp(ctx, branch.Later(0, "pg_mark", err))
	}
	if err := r.StillMine(ctx); err != nil {
		return nil, s.giveUp(ctx, branch.Later(0, "not_begun", err))
	}
	if err := s.swapPatiently(ctx, fresh); err != nil {
		return nil, err
	}
	p.at("drop")
	return done(r, note(s.tidy(ctx))), nil
}

// note is for what went wrong after the reset was done.
func note(err error) string {
	if err == nil {
		return ""
	}
	return "what was there before could not be dropped yet: " + err.Error()
}

// giveUp drops the copy: nothing has happened to the branch.
func (s *session) giveUp(ctx context.Context, err error) error {
	if terr := s.tidy(ctx); terr != nil {
		return errors.Join(err, terr)
	}
	return err
}

// survey looks at branch and parent, before anything is made.
func (s *session) survey(ctx context.Context) (target database, err error) {
	all, err := s.databases(ctx)
	if err != nil {
		return target, branch.Later(0, "pg_survey", err)
	}
	target, found := all[s.reset.Target]
	if !found {
		return target, branch.Refused("no_database", fmt.Errorf("there is no database %q", s.reset.Target))
	}
	if target.template {
		return target, branch.Refused("protected", fmt.Errorf("the database %q is marked as a template: it is never reset", s.reset.Target))
	}
	if _, found := all[s.reset.Parent]; !found {
		return target, branch.Refused("no_parent", fmt.Errorf("there is no database %q to copy", s.reset.Parent))
	}
	return target, nil
}

// copyParent makes the copy. While it is being made the parent takes no connections, and somebody who is connected
// already keeps it from being copied.
func (s *session) copyParent(ctx context.Context, fresh, owner string) error {
	if s.provider.cfg.EvictTemplate {
		if err := s.evict(ctx, s.reset.Parent); err != nil {
			return branch.Later(0, "pg_evict", err)
		}
	}
	_, err := s.Exec(ctx, "create database "+quote(fresh)+" template "+quote(s.reset.Parent)+" owner "+quote(owner))
	switch {
	case err == nil:
		return nil
	case isState(err, "55006"):
		return branch.Later(0, "parent_in_use", fmt.Errorf("somebody is connected to the parent %q: %w", s.reset.Parent, err))
	case isState(err, "42501"):
		return branch.Misconfigured("pg_42501", err)
	}
	return s.giveUp(ctx, branch.Later(0, "pg_create", err)) // the branch was not touched
}

// swapPatiently cuts off who is connected to the branch and swaps, again and again while somebody is faster.
func (s *session) swapPatiently(ctx context.Context, fresh string) error {
	deadline := time.Now().Add(s.provider.cfg.Patience)
	for {
		s.provider.at("evict")
		if err := s.evict(ctx, s.reset.Target); err != nil {
			return s.giveUp(ctx, branch.Later(0, "pg_evict", err))
		}
		s.provider.at("swap")
		err := s.swap(ctx, fresh)
		switch {
		case err == nil:
			return nil
		case !isState(err, "55006") && !isState(err, "55P03") && !isState(err, "40P01"):
			return err
		case time.Now().After(deadline):
			return s.giveUp(ctx, branch.Later(0, "branch_in_use", fmt.Errorf("connections to %q cannot be cut off: %w", s.reset.Target, err)))
		}
		if err := sleep(ctx, 20*time.Millisecond); err != nil {
			return s.giveUp(ctx, branch.Later(0, "branch_in_use", err))
		}
	}
}

// swap is one transaction: the branch is as before or reset, and marked, and never gone. An error that is not
// PostgreSQL's refusal, such as a lost answer to the COMMIT, means that nobody knows.
func (s *session) swap(ctx context.Context, fresh string) error {
	old, err := beside(s.reset, suffixOld)
	if err != nil {
		return err
	}
	tx, err := s.BeginTx(ctx, pgx.TxOptions{BeginQuery: "begin isolation level read committed; set local lock_timeout = '10s'"})
	if err != nil {
		return branch.Later(0, "pg_swap", err)
	}
	defer func() {
		rctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*time.Second)
		defer cancel()
		_ = tx.Rollback(rctx) // nothing, after a commit
	}()
	for _, sql := range []string{
		"alter database " + quote(s.reset.Target) + " rename to " + quote(old),
		"comment on database " + quote(old) + " is " + literal(mark{Branch: s.reset.Target}.text()),
		"alter database " + quote(fresh) + " rename to " + quote(s.reset.Target),
	} {
		if _, err := tx.Exec(ctx, sql); err != nil {
			return err
		}
	}
	s.provider.at("commit")
	return tx.Commit(ctx)
}

// Find gets the lock from whoever was at the reset, so that nothing of it can come any more, and reads the mark.
func (p *Provider) Find(ctx context.Context, r branch.Reset) ([]branch.Operation, bool, error) {
	if err := p.check(r); err != nil {
		return nil, false, branch.NotApplied(err)
	}
	s, err := p.open(ctx, r)
	if err != nil {
		return nil, false, err
	}
	defer s.end()
	all, err := s.databases(ctx)
	if err != nil {
		return nil, false, err
	}
	terr := s.tidy(ctx)
	if all[r.Target].mark.Run == r.RunID {
		return done(r, note(terr)), true, nil
	}
	if terr != nil {
		return nil, false, terr // until it is as before in all
	}
	return nil, false, branch.NotApplied(errors.New("the process that was at it is gone, and the branch is as it was before"))
}

// Poll reads the mark: a swap is over when Issue returns.
func (p *Provider) Poll(ctx context.Context, r branch.Reset, op branch.Operation) (branch.Operation, error) {
	ops, found, err := p.Find(ctx, r)
	var e *branch.Error
	switch {
	case found:
		return ops[0], nil
	case errors.As(err, &e) && e.Class == branch.ClassNotApplied:
		op.Status, op.State, op.Error = "failed", branch.Failed, err.Error()
		return op, nil
	}
	return op, err
}

// Cancel cannot stop a swap: it is over when Issue returns.
func (p *Provider) Cancel(context.Context, branch.Reset, []branch.Operation) error {
	return branch.ErrNotCancelable
}
