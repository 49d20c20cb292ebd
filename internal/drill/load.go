package drill

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
)

// load keeps so many runs of each subject unfinished at a time that every fault meets some, and few enough that a run
// that is taken over finds a free worker.
type load struct {
	pool        *pgxpool.Pool
	client      *jobs.Client
	subjects    []Subject
	outstanding int
	asked       int64
	say         func(format string, args ...any)
	// failed is why a subject could not be filled last, by its name.
	failed map[string]error
}

// run enqueues until ctx ends. An outage of the database is waited for.
func (l *load) run(ctx context.Context) {
	for ctx.Err() == nil {
		for _, s := range l.subjects {
			if err := l.fill(ctx, s); err != nil && ctx.Err() == nil {
				l.failed[s.Name()] = err
				sleep(ctx, 200*time.Millisecond)
			}
		}
		sleep(ctx, 50*time.Millisecond)
	}
}

// fill brings a subject up to its number of unfinished runs, each asked for in a transaction that notes it.
func (l *load) fill(ctx context.Context, s Subject) error {
	var live int
	err := l.pool.QueryRow(ctx, `select count(*) from weir_drill.asked a join weir.run r on r.id = a.run_id
		where a.kind = $1 and r.finished_at is null`, s.Kind()).Scan(&live)
	if err != nil {
		return err
	}
	for left := l.outstanding - live; left > 0; {
		n := 1
		if _, ok := s.(bulk); ok && l.asked%2 == 0 {
			n = left
		}
		err := pgx.BeginFunc(ctx, l.pool, func(tx pgx.Tx) error { return l.ask(ctx, tx, s, n) })
		if err != nil {
			return err
		}
		l.asked += int64(n)
		left -= n
	}
	return nil
}

// ask asks for so many runs, and notes them.
func (l *load) ask(ctx context.Context, tx pgx.Tx, s Subject, n int) error {
	var ids []jobs.RunID
	if many, ok := s.(bulk); ok && n > 1 {
		var err error
		if ids, err = many.EnqueueMany(ctx, tx, l.client, l.asked+1, n); err != nil {
			return err
		}
	} else {
		id, err := s.Enqueue(ctx, tx, l.client, l.asked+1)
		if err != nil {
			return err
		}
		ids = append(ids, id)
	}
	for i, id := range ids {
		_, err := tx.Exec(ctx, "insert into weir_drill.asked (run_id, kind, n) values ($1, $2, $3)", uuid.UUID(id), s.Kind(), l.asked+1+int64(i))
		if err != nil {
			return err
		}
	}
	return nil
}

// drain waits until every run is terminal. It returns how many are not when the patience is at its end.
func (l *load) drain(ctx context.Context, patience time.Duration) (left int, err error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := l.pool.QueryRow(ctx, `select count(*) from weir_drill.asked a left join weir.run r on r.id = a.run_id
			where r.finished_at is null`).Scan(&left)
		if err == nil && left == 0 {
			return 0, nil
		}
		select {
		case <-ctx.Done():
			if left > 0 {
				return left, nil
			}
			return left, fmt.Errorf("drill: the database does not answer at the end: %w", err)
		case <-time.After(200 * time.Millisecond):
		}
	}
}
