package drill

import (
	"context"
	"errors"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/receipts"
)

// stay is a drill's time in a database of somebody else's: alone, and without leaving behind what waits for a worker.
type stay struct {
	pool *pgxpool.Pool
	lock *pgx.Conn // its session holds the lock
	jobs string    // River's table
}

// LockOfDrills is the advisory lock that keeps two drills from each other's records.
const LockOfDrills = 0x77656972_6472

// codeOfDrill is the code of runs that a drill has left behind.
const codeOfDrill = "drill_ended"

// moveIn takes the database, or says who has it. A drill breaks what it finds, and judges it: runs of others would be
// taken over, and their owners counted as liars.
func moveIn(ctx context.Context, pool *pgxpool.Pool, riverSchema string) (_ *stay, err error) {
	s := &stay{pool: pool, jobs: doorbell.Table(riverSchema)}
	if s.lock, err = pgx.ConnectConfig(ctx, pool.Config().ConnConfig); err != nil {
		return nil, fmt.Errorf("drill: %w", err)
	}
	if err := s.alone(ctx); err != nil {
		return nil, errors.Join(err, s.lock.Close(context.WithoutCancel(ctx)))
	}
	return s, nil
}

func (s *stay) alone(ctx context.Context) error {
	var mine bool
	if err := s.lock.QueryRow(ctx, "select pg_try_advisory_lock($1)", int64(LockOfDrills)).Scan(&mine); err != nil {
		return fmt.Errorf("drill: %w", err)
	}
	if !mine {
		return errors.New("drill: another drill works on this database")
	}
	if err := s.clear(ctx); err != nil { // after one that was killed
		return err
	}
	var live, workers int
	err := s.lock.QueryRow(ctx, `select (select count(*) from weir.run where finished_at is null),
		(select count(*) from pg_stat_activity where datname = current_database() and application_name = 'weir heartbeat')`).Scan(&live, &workers)
	switch {
	case err != nil:
		return fmt.Errorf("drill: %w", err)
	case live > 0:
		return fmt.Errorf("drill: the database has %d runs that have not ended: a drill must have it to itself", live)
	case workers > 0:
		return fmt.Errorf("drill: %d worker processes of a fleet use the database: a drill must have it to itself", workers)
	}
	return nil
}

// moveOut leaves the database as it was, but for finished runs, which are cleaned away with all others.
func (s *stay) moveOut(ctx context.Context) error {
	err := s.clear(ctx)
	if err == nil {
		_, err = s.pool.Exec(ctx, uninstallSQL)
	}
	return errors.Join(err, s.lock.Close(ctx))
}

// clear cancels the drill's runs that have not ended, whose owners are gone, and removes their doorbells.
func (s *stay) clear(ctx context.Context) error {
	var any bool
	if err := s.pool.QueryRow(ctx, "select to_regclass('weir_drill.asked') is not null").Scan(&any); err != nil || !any {
		return err
	}
	rows, err := s.pool.Query(ctx, "select r.id from weir_drill.asked a join weir.run r on r.id = a.run_id where r.finished_at is null order by r.id")
	if err != nil {
		return fmt.Errorf("drill: end what is left: %w", err)
	}
	runs, err := pgx.CollectRows(rows, pgx.RowTo[uuid.UUID])
	if err != nil {
		return fmt.Errorf("drill: end what is left: %w", err)
	}
	for _, run := range runs {
		err := s.cancel(ctx, run)
		for range 10 { // the server may not have noticed yet that an owner is gone
			if !fencing.IsTransient(err) {
				break
			}
			err = s.cancel(ctx, run)
		}
		if err != nil {
			return fmt.Errorf("drill: end what is left: %w", err)
		}
	}
	// Those of its runs, of its chunks, and the upkeep of its workers: no other fleet is here.
	_, err = s.pool.Exec(ctx, "delete from "+s.jobs+` j where state in ('available', 'pending', 'retryable', 'running', 'scheduled')
		and (queue in ('weir_maintenance', 'weir_dbops') or exists (select from weir_drill.asked a
			where a.run_id::text = j.args ->> 'run_id' or starts_with(j.kind, 'weir_') and strpos(j.args ->> 'run_ids', a.run_id::text) > 0))`)
	if err != nil {
		return fmt.Errorf("drill: remove doorbells: %w", err)
	}
	if _, err := s.pool.Exec(ctx, "delete from weir.branch where provider = $1 and name like 'drill-%'", drillProvider); err != nil {
		return fmt.Errorf("drill: remove branches: %w", err)
	}
	return nil
}

func (s *stay) cancel(ctx context.Context, run uuid.UUID) error {
	tx, err := fencing.Begin(ctx, s.pool)
	if err != nil {
		return err
	}
	defer fencing.RollbackQuietly(ctx, tx)
	l, ok, err := fencing.LockRun(ctx, tx, run)
	if err != nil || !ok || l.Terminal {
		return err
	}
	if err := fencing.CancelLocked(ctx, tx, fencing.MachineOf(l.Kind), run, codeOfDrill); err != nil {
		return err
	}
	if l.Owned {
		if err := receipts.SettleUnknown(ctx, tx, []uuid.UUID{run}); err != nil {
			return err
		}
	}
	return tx.Commit(ctx)
}
