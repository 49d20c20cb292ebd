package pgtemplate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirqueue/weir/workers/branch"
)

// session is the one connection that does everything, and the lock that it holds.
type session struct {
	*pgx.Conn
	provider *Provider
	reset    branch.Reset
}

// lockKey is the branch's, in the database that all processes connect to.
const lockKey = `hashtextextended('weir branch ' || $1, 0)`

// open connects and gets the branch's lock, from whoever has it: only the owner of the branch's one live run may hold it,
// and the caller is that. It fails closed: without the lock nothing is done.
func (p *Provider) open(ctx context.Context, r branch.Reset) (_ *session, err error) {
	cfg := p.conn.Copy()
	cfg.RuntimeParams["application_name"] = "weir reset"
	// A process that freezes within the swap lets go of the branch's name.
	cfg.RuntimeParams["idle_in_transaction_session_timeout"] = "10s"
	cfg.RuntimeParams["tcp_keepalives_idle"] = "10"
	cfg.RuntimeParams["tcp_keepalives_interval"] = "5"
	cfg.RuntimeParams["tcp_keepalives_count"] = "3"
	p.at("connect")
	conn, err := pgx.ConnectConfig(ctx, cfg)
	if err != nil {
		var refused *pgconn.PgError
		if errors.As(err, &refused) && (refused.Code == "28P01" || refused.Code == "28000") {
			return nil, branch.Misconfigured("pg_"+refused.Code, errors.New("the server refuses our login"))
		}
		return nil, branch.Later(0, "pg_unreachable", errors.New("the server of the branches cannot be reached"))
	}
	s := &session{Conn: conn, provider: p, reset: r}
	defer func() {
		if err != nil {
			s.end()
		}
	}()
	p.at("lock")
	if err := s.lock(ctx); err != nil {
		return nil, err
	}
	// From here on whoever takes the run over must end this connection first. So the answer to this question holds until
	// then.
	if err := r.StillMine(ctx); err != nil {
		return nil, branch.Later(0, "not_begun", err)
	}
	return s, nil
}

func (s *session) lock(ctx context.Context) error {
	deadline := time.Now().Add(s.provider.cfg.Patience)
	for {
		var got bool
		if err := s.QueryRow(ctx, "select pg_try_advisory_lock("+lockKey+")", s.reset.Target).Scan(&got); err != nil {
			return branch.Later(0, "pg_lock", err)
		}
		if got {
			return nil
		}
		if err := s.reset.StillMine(ctx); err != nil {
			return branch.Later(0, "not_begun", err)
		}
		if time.Now().After(deadline) {
			return branch.Later(0, "pg_locked", errors.New("another connection holds the branch's lock and does not go away"))
		}
		// The holder is a predecessor that is frozen or dead. It is gone when the lock is ours.
		_, err := s.Exec(ctx, `select pg_terminate_backend(l.pid) from pg_locks l
			where l.locktype = 'advisory' and l.granted and l.pid <> pg_backend_pid() and l.objsubid = 1
			    and l.database = (select oid from pg_database where datname = current_database())
			    and (l.classid::bigint << 32 | l.objid::bigint) = `+lockKey, s.reset.Target)
		if err != nil {
			return branch.Later(0, "pg_locked", fmt.Errorf("the holder of the branch's lock cannot be ended: %w", err))
		}
		if err := sleep(ctx, 50*time.Millisecond); err != nil {
			return branch.Later(0, "pg_locked", err)
		}
	}
}

// end closes the connection, and with it the lock.
func (s *session) end() {
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Second)
	defer cancel()
	_ = s.Close(ctx)
}

// database is one of the server's, with its mark.
type database struct {
	name, owner string
	template    bool
	mark        mark
}

func (s *session) databases(ctx context.Context) (map[string]database, error) {
	rows, err := s.Query(ctx, `select d.datname, pg_get_userbyid(d.datdba), d.datistemplate, coalesce(shobj_description(d.oid, 'pg_database'), '')
		from pg_database d`)
	if err != nil {
		return nil, err
	}
	all := map[string]database{}
	var (
		d       database
		comment string
	)
	_, err = pgx.ForEachRow(rows, []any{&d.name, &d.owner, &d.template, &comment}, func() error {
		d.mark = readMark(comment)
		all[d.name] = d
		return nil
	})
	return all, err
}

// evict cuts off who is connected to a database. It does not wait for them to be gone. Autovacuum has no user, makes way
// by itself, and is not for everybody to end.
func (s *session) evict(ctx context.Context, name string) error {
	_, err := s.Exec(ctx, "select pg_terminate_backend(pid) from pg_stat_activity where datname = $1 and pid <> pg_backend_pid() and usesysid is not null", name)
	return err
}

// tidy drops what earlier attempts at this branch have left beside it. What cannot be dropped now is tried again by
// whoever comes next.
func (s *session) tidy(ctx context.Context) error {
	all, err := s.databases(ctx)
	if err != nil {
		return err
	}
	var errs []error
	for name, d := range all {
		if isLeftoverOf(s.reset.Target, name, d.mark) {
			_, err := s.Exec(ctx, "drop database if exists "+quote(name)+" with (force)")
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

func isState(err error, code string) bool {
	var refused *pgconn.PgError
	return errors.As(err, &refused) && refused.Code == code
}
