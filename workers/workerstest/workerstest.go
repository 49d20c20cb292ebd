// Package workerstest is a conformance suite for kinds of an application's own, and for the channels of notification
// deliveries. It runs a kind in several processes of a fleet at once and does to them what production does: doorbells that ring twice, owners that are replaced before,
// inside and after every step, partitions, crashes, lost answers to a COMMIT. After each it asks the application
// whether its effects are as they should be:
//
//	func TestOrder(t *testing.T) {
//		workerstest.Run(t, workerstest.Config[Order]{
//			Pool: pool, // a migrated database of the test's own
//			Kind: shop.OrderKind,
//			Bind: func(cfg workers.KindConfig) workers.Binding { return workers.Bind(shop.OrderKind, cfg, …) },
//			Payload: func(i int) Order { return Order{Number: i} },
//			Check: func(ctx context.Context, pool *pgxpool.Pool, run *jobs.Run, o Order) error { … },
//		})
//	}
//
// What it finds by itself: a step that is executed although it has a receipt, an owner whose write was not refused, a
// Reconciled step that is issued twice, an asking function that does not find what was issued, an Idempotent step whose
// second call with the same key returned something else, a step that needs what an earlier one left in memory, a
// function that does not return when its context has ended.
//
// What Check must find, since only it knows the effects: a transactional step that writes through another connection
// than its tx, or that has an effect outside, and so has its effect twice; a provider that does not honour the key. Check
// sees too few effects as well as too many, if it counts.
//
// RunChannel does the same to a channel, the built-in ones or one of the application's own, and Weir's own pass it. A
// message is a step, and each part of one in parts is one:
//
//	func TestPager(t *testing.T) {
//		workerstest.RunChannel(t, workerstest.ChannelConfig{
//			Pool: pool,
//			Channel: func() (channel.Channel, error) { return pager.New(provider.URL) }, // one for each process
//			Notification: func(i int) jobs.Notification {
//				return jobs.Notification{To: []jobs.Recipient{{Channel: "pager", Address: strconv.Itoa(i)}}, Text: "hello"}
//			},
//			Taken:   func(ctx context.Context, m channel.Message) (int, error) { return provider.Count(m.IdempotencyKey) },
//			Silence: func() (end func()) { return provider.Hang() },
//		})
//	}
//
// Beside what it finds of kinds, it finds a channel that sends although its context has ended, whose effect is not constant,
// or whose references do not fit into a receipt. From Taken it learns of one that says sent of what was not, or not sent of
// what was; that sends twice in one call, or sends an earlier part again; that does not hand on its key. With Silence it sees
// a Send that waits on when its context has ended.
//
// What nobody finds here: effects that Check does not look at; what one step leaves for another in a variable of a package,
// since the suite's processes are one program; a machine that is frozen as a whole, or a clock that
// jumps (Weir's own drill does these to real processes); a failover that loses commits.
package workerstest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// Config says what is tested. All but Schema, Lease, Check and OutputsVary is required.
type Config[T any] struct {
	// Pool leads to a migrated database that no other fleet works on. The suite makes pools of its own like it, without
	// TLS. It is left open.
	Pool *pgxpool.Pool
	// Schema is where River's tables are. Defaults to what the search_path says.
	Schema string
	Kind   *jobs.Kind[T]
	// Bind makes the binding of one process, with the configuration that it is given. It is called for each process: what
	// the bindings share must be outside, as a provider's fake is.
	Bind func(cfg workers.KindConfig) workers.Binding
	// Payload makes the payload of the i-th run. Each should have effects that Check can tell from the others'. A run of
	// it must succeed where nothing goes wrong.
	Payload func(i int) T
	// Check is called after each scenario whose run succeeded. It returns an error when the effects in the database or
	// outside are not as they should be. An effect of an AtLeastOnce step may be there twice.
	Check func(ctx context.Context, pool *pgxpool.Pool, run *jobs.Run, payload T) error
	// Lease is that of the suite's processes. Defaults to 2 s; 1 s to 1 min. Longer where steps are slow, or the machine is
	// busy: a lease that runs out by itself is a takeover more than the scenario meant.
	Lease time.Duration
	// OutputsVary names Idempotent steps whose output may differ between two calls with the same key.
	OutputsVary []string
}

func (c Config[T]) withDefaults() Config[T] {
	if c.Lease == 0 {
		c.Lease = defaultLease
	}
	if c.Check == nil {
		c.Check = func(context.Context, *pgxpool.Pool, *jobs.Run, T) error { return nil }
	}
	return c
}

func (c Config[T]) validate() error {
	var faults []error
	missing := func(name string, is bool) {
		if is {
			faults = append(faults, fmt.Errorf("workerstest: Config.%s is missing", name))
		}
	}
	missing("Pool", c.Pool == nil)
	missing("Kind", c.Kind == nil)
	missing("Bind", c.Bind == nil)
	missing("Payload", c.Payload == nil)
	if c.Lease < time.Second || c.Lease > time.Minute {
		faults = append(faults, fmt.Errorf("workerstest: Config.Lease = %s: must be from 1s to 1m", c.Lease))
	}
	return errors.Join(faults...)
}

// Run runs every scenario as a subtest, one after the other: about 15 s for each step of the kind.
func Run[T any](t *testing.T, cfg Config[T]) {
	t.Helper()
	sub, err := cfg.subject()
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSuite(sub)
	if err != nil {
		t.Fatal(err)
	}
	s.run(t)
}
