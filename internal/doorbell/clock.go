package doorbell

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/weirqueue/weir/internal/fencing"
)

// River stamps a job that is to be worked at once with the clock of the process that inserts it, and fetches by the
// database's. A process whose clock is an hour ahead would ring doorbells that nobody hears for an hour, the sweep's too. So
// doorbells are stamped by the database.

// databaseClock is a hook of the arguments. River's driver takes a zero time for the database's now; the lack of a value it
// fills with the process's.
type databaseClock struct{ river.HookDefaults }

type stampedKey struct{}

func (*databaseClock) InsertBegin(ctx context.Context, p *rivertype.JobInsertParams) error {
	p.CreatedAt = new(time.Time)
	if p.State == rivertype.JobStateAvailable {
		p.ScheduledAt = new(time.Time)
	}
	if stamped, ok := ctx.Value(stampedKey{}).(*bool); ok {
		*stamped = true
	}
	return nil
}

// Hooks are River's: it asks the arguments for them.
func (Args) Hooks() []rivertype.Hook { return []rivertype.Hook{&databaseClock{}} }

// watchStamp gives the hook a place to say that it was called. A River client that works Weir's kinds itself has asked its
// workers' arguments, and asks no others.
func watchStamp(ctx context.Context) (context.Context, *bool) {
	stamped := new(bool)
	return context.WithValue(ctx, stampedKey{}, stamped), stamped
}

// hurry is for what the hook could not stamp.
func (b *Bells) hurry(ctx context.Context, tx pgx.Tx, jobs []int64) error {
	if _, err := tx.Exec(ctx, b.stamp.SQL, b.stamp.Bind(fencing.Args{"jobs": jobs})...); err != nil {
		return fmt.Errorf("stamp doorbells: %w", err)
	}
	return nil
}

func stampStatement(table string) *fencing.Statement {
	return fencing.Build("stamp doorbells", `
update `+table+` set scheduled_at = clock_timestamp()
where id = any(@jobs::bigint[]) and state = 'available' and scheduled_at > clock_timestamp() + interval '1 s'`)
}
