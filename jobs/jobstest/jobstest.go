package jobstest

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/internal/operation"
	"github.com/weirqueue/weir/jobs"
)

// failer is what the assertions need of a testing.TB.
type failer interface {
	Helper()
	Fatalf(format string, args ...any)
}

// RequireNotified fails the test unless exactly one delivery to the recipient was enqueued that is as opts says, which
// may be nil. It returns the delivery's run. Several matches are a failure too: say more in opts.
func RequireNotified(ctx context.Context, tb testing.TB, db Querier, to jobs.Recipient, opts *NotifiedOpts) jobs.RunID {
	tb.Helper()
	return requireNotified(ctx, tb, db, to, opts)
}

// RequireNotNotified fails the test if a delivery to the recipient was enqueued that is as opts says, which may be nil.
func RequireNotNotified(ctx context.Context, tb testing.TB, db Querier, to jobs.Recipient, opts *NotifiedOpts) {
	tb.Helper()
	requireNotNotified(ctx, tb, db, to, opts)
}

// RequireEnqueued fails the test unless exactly one run of the kind with this payload was enqueued that is as opts says,
// which may be nil. It returns the run.
func RequireEnqueued[T any](ctx context.Context, tb testing.TB, db Querier, kind *jobs.Kind[T], payload T, opts *Opts) jobs.RunID {
	tb.Helper()
	return requireEnqueued(ctx, tb, db, kind.Name(), payload, opts)
}

// RequireNotEnqueued fails the test if a run of the kind with this payload was enqueued that is as opts says, which may
// be nil.
func RequireNotEnqueued[T any](ctx context.Context, tb testing.TB, db Querier, kind *jobs.Kind[T], payload T, opts *Opts) {
	tb.Helper()
	requireNotEnqueued(ctx, tb, db, kind.Name(), payload, opts)
}

func requireNotified(ctx context.Context, tb failer, db Querier, to jobs.Recipient, opts *NotifiedOpts) jobs.RunID {
	tb.Helper()
	matches, others, err := notified(ctx, db, to, opts)
	return exactlyOne(tb, "delivery to "+to.Channel+" "+to.Address, matches, others, err)
}

func requireNotNotified(ctx context.Context, tb failer, db Querier, to jobs.Recipient, opts *NotifiedOpts) {
	tb.Helper()
	matches, _, err := notified(ctx, db, to, opts)
	none(tb, "delivery to "+to.Channel+" "+to.Address, matches, err)
}

func requireEnqueued(ctx context.Context, tb failer, db Querier, kind string, payload any, opts *Opts) jobs.RunID {
	tb.Helper()
	matches, others, err := ofKind(ctx, db, kind, payload, opts)
	return exactlyOne(tb, "run of kind "+kind, matches, others, err)
}

func requireNotEnqueued(ctx context.Context, tb failer, db Querier, kind string, payload any, opts *Opts) {
	tb.Helper()
	matches, _, err := ofKind(ctx, db, kind, payload, opts)
	none(tb, "run of kind "+kind, matches, err)
}

func exactlyOne(tb failer, what string, matches []jobs.RunID, others []string, err error) jobs.RunID {
	tb.Helper()
	switch {
	case err != nil:
		tb.Fatalf("jobstest: %v", err)
	case len(matches) == 0:
		tb.Fatalf("jobstest: no %s was enqueued as wanted; %s", what, describe(others))
	case len(matches) > 1:
		tb.Fatalf("jobstest: %d times a %s was enqueued as wanted, not once: %v", len(matches), what, matches)
	default:
		return matches[0]
	}
	return jobs.RunID{}
}

func none(tb failer, what string, matches []jobs.RunID, err error) {
	tb.Helper()
	switch {
	case err != nil:
		tb.Fatalf("jobstest: %v", err)
	case len(matches) > 0:
		tb.Fatalf("jobstest: a %s was enqueued: %v", what, matches)
	}
}

func notified(ctx context.Context, db Querier, to jobs.Recipient, opts *NotifiedOpts) (matches []jobs.RunID, others []string, err error) {
	if opts == nil {
		opts = &NotifiedOpts{}
	}
	list, err := enqueued(ctx, db, jobs.KindDelivery)
	for _, f := range list {
		var p delivery.Payload
		if err := json.Unmarshal(f.body, &p); err != nil {
			return nil, nil, fmt.Errorf("the payload of run %s: %w", f.id, err)
		}
		differences := opts.differences(f)
		if p.Channel != to.Channel || p.Address != to.Address {
			differences = append(differences, "it is for another")
		}
		if opts.Subject != "" && opts.Subject != p.Subject {
			differences = append(differences, fmt.Sprintf("subject is %q, not %q", p.Subject, opts.Subject))
		}
		if !strings.Contains(p.Text+"\x00"+p.HTML+"\x00"+strings.Join(p.Parts, ""), opts.Contains) {
			differences = append(differences, fmt.Sprintf("it does not say %q", opts.Contains))
		}
		if len(differences) == 0 {
			matches = append(matches, jobs.RunID(f.id))
		} else {
			others = append(others, fmt.Sprintf("%s to %s %s: %s", f.id, p.Channel, p.Address, strings.Join(differences, ", ")))
		}
	}
	return matches, others, err
}

func ofKind(ctx context.Context, db Querier, kind string, payload any, opts *Opts) (matches []jobs.RunID, others []string, err error) {
	if opts == nil {
		opts = &Opts{}
	}
	want, err := delivery.Canonical(payload)
	if err != nil {
		return nil, nil, err
	}
	list, err := enqueued(ctx, db, kind)
	for _, f := range list {
		frozen, err := operation.Decode(f.body, delivery.Digest(f.body))
		if err != nil {
			return nil, nil, fmt.Errorf("the payload of run %s: %w", f.id, err)
		}
		differences := opts.differences(f)
		if !bytes.Equal(frozen.Payload, want) {
			differences = append(differences, fmt.Sprintf("payload is %s, not %s", frozen.Payload, want))
		}
		if len(differences) == 0 {
			matches = append(matches, jobs.RunID(f.id))
		} else {
			others = append(others, fmt.Sprintf("%s: %s", f.id, strings.Join(differences, ", ")))
		}
	}
	return matches, others, err
}
