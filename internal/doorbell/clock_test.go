package doorbell_test

import (
	"context"
	"log/slog"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/fencing/fencetest"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// off is a clock that is ahead, for River.
type off time.Duration

func (o off) Now() time.Time       { return time.Now().UTC().Add(time.Duration(o)) }
func (o off) NowOrNil() *time.Time { now := o.Now(); return &now }

// args are those that a worker of the kind has, in its package.
type args struct {
	RunID uuid.UUID `json:"run_id"`
}

func (args) Kind() string { return doorbell.RiverKind(fencetest.Delivery) }

type worker struct{ river.WorkerDefaults[args] }

func (worker) Work(context.Context, *river.Job[args]) error { return nil }

// L11: who rings may have any clock. The doorbell is heard by the database's, at once or when it is due; also where the
// River client works the kind itself, and so does not ask our arguments for hooks.
func TestRing_ByTheDatabasesClock(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	for name, clock := range map[string]off{"ahead": off(6 * time.Hour), "behind": off(-6 * time.Hour)} {
		for _, works := range []bool{false, true} {
			cfg := &river.Config{Logger: slog.New(slog.DiscardHandler), Test: river.TestConfig{Time: clock}}
			if works {
				cfg.Workers = river.NewWorkers()
				river.AddWorker(cfg.Workers, &worker{})
			}
			client, err := river.NewClient(riverpgxv5.New(pool), cfg)
			require.NoError(t, err)
			bells := doorbell.New(client)

			at := time.Now().Add(time.Hour).Truncate(time.Microsecond)
			now, later := fencetest.Insert(t, pool, fencetest.Delivery, "pending"), fencetest.Insert(t, pool, fencetest.Delivery, "pending")
			tx := fencetest.Begin(t, pool)
			require.NoError(t, fencing.Ring(t.Context(), tx, bells,
				fencing.Rung{Run: now, Kind: fencetest.Delivery, Queue: "q", Priority: 1},
				fencing.Rung{Run: later, Kind: fencetest.Delivery, Queue: "q", Priority: 1, At: at}))
			require.NoError(t, tx.Commit(t.Context()))

			require.True(t, fencetest.Value[bool](t, pool, `select state = 'available' and scheduled_at <= clock_timestamp() from river_job where id = $1`,
				fencetest.Read(t, pool, now).Doorbell), "%s, works: %v", name, works)
			require.True(t, fencetest.Value[bool](t, pool, `select state = 'scheduled' and scheduled_at = $2 from river_job where id = $1`,
				fencetest.Read(t, pool, later).Doorbell, at), "%s, works: %v", name, works)
		}
	}
}
