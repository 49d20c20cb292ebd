package drill

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

const (
	probePause = 20 * time.Millisecond
	// slowProbe is what a probe may take beyond its pause on a machine that keeps up.
	slowProbe = 100 * time.Millisecond
)

// stalls notes when the machine, or the database, could not keep up: a probe that sleeps in PostgreSQL for a moment and
// comes back late. What happens in such a time measures the machine, so recoveries are measured without it.
type stalls struct {
	clock func() time.Time
	list  []span
}

type span struct{ from, until time.Time }

// watch probes until ctx ends.
func (s *stalls) watch(ctx context.Context, pool *pgxpool.Pool) {
	for ctx.Err() == nil {
		from := s.clock()
		_, err := pool.Exec(ctx, "select pg_sleep($1)", probePause.Seconds())
		until := s.clock()
		if ctx.Err() == nil && until.Sub(from) > probePause+slowProbe {
			s.list = append(s.list, span{from, until})
		}
		if err != nil {
			sleep(ctx, probePause) // an outage, which is noted as a fault of its own
		}
	}
}

// during is how much of a time was stalled.
func (s *stalls) during(from, until time.Time) time.Duration {
	var sum time.Duration
	if s == nil {
		return 0
	}
	for _, x := range s.list {
		start, end := x.from, x.until
		if start.Before(from) {
			start = from
		}
		if end.After(until) {
			end = until
		}
		if d := end.Sub(start); d > 0 {
			sum += d
		}
	}
	return sum
}

// total is how long the machine could not keep up in all.
func (s *stalls) total() (sum time.Duration) {
	for _, x := range s.list {
		sum += x.until.Sub(x.from)
	}
	return sum
}
