// Package jobstest helps an application's tests to say what was enqueued, in its own transaction or after the commit.
package jobstest

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/internal/operation"
	"github.com/weirqueue/weir/jobs"
)

// DB is a pgx.Tx, a pool or a connection. In a transaction its own enqueues are seen.
type DB interface {
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
}

// Want is what a delivery must be like. Empty fields mean anything.
type Want struct {
	Channel, Address, Subject, Text string
}

func (w Want) matches(p delivery.Payload) bool {
	return (w.Channel == "" || w.Channel == p.Channel) && (w.Address == "" || w.Address == p.Address) &&
		(w.Subject == "" || w.Subject == p.Subject) && (w.Text == "" || w.Text == p.Text)
}

// RequireNotified fails the test unless exactly one delivery is like want. The message lists the deliveries there are.
func RequireNotified(ctx context.Context, t testing.TB, db DB, want Want) {
	t.Helper()
	n, all, err := deliveries(ctx, db, want)
	if err != nil {
		t.Fatalf("jobstest: %v", err)
	}
	if n != 1 {
		t.Fatalf("jobstest: %d deliveries are like %+v, want 1; there are:%s", n, want, list(all))
	}
}

// RequireNotNotified fails the test if a delivery is like want; with an empty one, if there is any.
func RequireNotNotified(ctx context.Context, t testing.TB, db DB, want Want) {
	t.Helper()
	n, all, err := deliveries(ctx, db, want)
	if err != nil {
		t.Fatalf("jobstest: %v", err)
	}
	if n != 0 {
		t.Fatalf("jobstest: %d deliveries are like %+v, want none; there are:%s", n, want, list(all))
	}
}

// RequireEnqueued fails the test unless exactly one run of the kind has this payload, as compared by its JSON.
func RequireEnqueued[T any](ctx context.Context, t testing.TB, db DB, kind *jobs.Kind[T], payload T) {
	t.Helper()
	want, err := plain(payload)
	if err != nil {
		t.Fatalf("jobstest: encode the payload: %v", err)
	}
	bodies, err := read(ctx, db, kind.Name())
	if err != nil {
		t.Fatalf("jobstest: %v", err)
	}
	n := 0
	var all []string
	for _, b := range bodies {
		frozen, err := operation.Decode(b.body, b.digest)
		if err != nil {
			t.Fatalf("jobstest: %v", err)
		}
		got, err := plain(frozen.Payload)
		if err != nil {
			t.Fatalf("jobstest: %v", err)
		}
		if reflect.DeepEqual(got, want) {
			n++
		}
		all = append(all, string(frozen.Payload))
	}
	if n != 1 {
		t.Fatalf("jobstest: %d runs of %s have the payload %+v, want 1; there are:%s", n, kind.Name(), payload, list(all))
	}
}

func plain(v any) (out any, err error) {
	text, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	err = json.Unmarshal(text, &out)
	return out, err
}

func list(all []string) string {
	if len(all) == 0 {
		return " none"
	}
	return "\n\t" + strings.Join(all, "\n\t")
}

type frozenBody struct{ body, digest []byte }

func read(ctx context.Context, db DB, kind string) ([]frozenBody, error) {
	rows, err := db.Query(ctx, `select p.body, p.digest from weir.run r join weir.payload p on p.run_id = r.id
		where r.kind = $1 and p.body is not null order by r.created_at, r.id`, kind)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (b frozenBody, err error) {
		err = row.Scan(&b.body, &b.digest)
		return b, err
	})
}

func deliveries(ctx context.Context, db DB, want Want) (n int, all []string, err error) {
	bodies, err := read(ctx, db, jobs.KindDelivery)
	if err != nil {
		return 0, nil, err
	}
	for _, b := range bodies {
		p, err := delivery.Decode(b.body, b.digest)
		if err != nil {
			return 0, nil, err
		}
		if want.matches(p) {
			n++
		}
		all = append(all, fmt.Sprintf("%s to %s: %q", p.Channel, p.Address, p.Subject))
	}
	return n, all, nil
}
