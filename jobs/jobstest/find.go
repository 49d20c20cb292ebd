package jobstest

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/jobs"
)

// Querier is what the assertions read through: a *pgxpool.Pool, a *pgx.Conn or a pgx.Tx.
type Querier interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Opts narrows what counts as a match: everything that is set must be as it says. The zero value, and nil, match all.
type Opts struct {
	// MaxAttempts, Priority and Queue are as in jobs.Opts.
	MaxAttempts, Priority int
	Queue                 string
	// ScheduledAt is when the run is due, to the microsecond.
	ScheduledAt time.Time
	// Status is where the run stands.
	Status jobs.Status
	// Tags are the run's tags, in order.
	Tags []string
}

// NotifiedOpts is Opts, and what the message says.
type NotifiedOpts struct {
	Opts
	// Subject is the whole subject; Contains must occur in the text or the HTML.
	Subject, Contains string
}

// found is a run with its payload.
type found struct {
	id                    uuid.UUID
	status                jobs.Status
	maxAttempts, priority int
	queue                 string
	dueAt                 *time.Time
	tags                  []string
	body                  []byte
}

// enqueued lists the runs of a kind, oldest first. A payload that was erased matches nothing.
func enqueued(ctx context.Context, db Querier, kind string) ([]found, error) {
	rows, err := db.Query(ctx, `select r.id::text, r.status, r.max_failures, r.priority, r.queue,
			case when r.next_attempt_at < 'infinity' then r.next_attempt_at end, r.tags, convert_from(p.body, 'UTF8')
		from weir.run r join weir.payload p on p.run_id = r.id where r.kind = $1 and p.body is not null order by r.id`, kind)
	if err != nil {
		return nil, fmt.Errorf("read runs of kind %s: %w", kind, err)
	}
	list, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (f found, err error) {
		var id, body string
		if err := row.Scan(&id, &f.status, &f.maxAttempts, &f.priority, &f.queue, &f.dueAt, &f.tags, &body); err != nil {
			return f, err
		}
		f.body = []byte(body)
		f.id, err = uuid.Parse(id)
		return f, err
	})
	if err != nil {
		return nil, fmt.Errorf("read runs of kind %s: %w", kind, err)
	}
	return list, nil
}

// differences says in what a run is not as wanted; none when it matches.
func (o Opts) differences(f found) (out []string) {
	differ := func(what string, got, want any) {
		out = append(out, fmt.Sprintf("%s is %v, not %v", what, got, want))
	}
	if o.MaxAttempts != 0 && o.MaxAttempts != f.maxAttempts {
		differ("max attempts", f.maxAttempts, o.MaxAttempts)
	}
	if o.Priority != 0 && o.Priority != f.priority {
		differ("priority", f.priority, o.Priority)
	}
	if o.Queue != "" && o.Queue != f.queue {
		differ("queue", f.queue, o.Queue)
	}
	if o.Status != "" && o.Status != f.status {
		differ("status", f.status, o.Status)
	}
	if o.Tags != nil && !slices.Equal(o.Tags, f.tags) {
		differ("tags", f.tags, o.Tags)
	}
	if !o.ScheduledAt.IsZero() {
		if at := o.ScheduledAt.Truncate(time.Microsecond); f.dueAt == nil || !at.Equal(*f.dueAt) {
			due := "never"
			if f.dueAt != nil {
				due = f.dueAt.Format(time.RFC3339Nano)
			}
			differ("due", due, at.Format(time.RFC3339Nano))
		}
	}
	return out
}

// describe lists runs that were looked at, for the message of a failure.
func describe(list []string) string {
	const most = 10
	if len(list) == 0 {
		return "nothing of the kind was enqueued"
	}
	more := ""
	if len(list) > most {
		list, more = list[:most], fmt.Sprintf("\n  and %d more", len(list)-most)
	}
	return "enqueued were:\n  " + strings.Join(list, "\n  ") + more
}
