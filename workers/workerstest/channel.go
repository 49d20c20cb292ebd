package workerstest

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/channel"
)

// ChannelConfig says which channel is tested. Pool, Channel and Notification are required.
type ChannelConfig struct {
	// Pool leads to a migrated database that no other fleet works on. The suite makes pools of its own like it, without
	// TLS. It is left open.
	Pool *pgxpool.Pool
	// Schema is where River's tables are. Defaults to what the search_path says.
	Schema string
	// Channel makes the channel of one process. It is called for each process: what the channels share must be outside,
	// as a provider's fake is. A channel that has a Close method is closed after its process.
	Channel func() (channel.Channel, error)
	// Notification makes the i-th notification. Each has one recipient, on the same channel, and as many parts as the
	// others; it differs from the others in what the provider sees. It must be sent where nothing goes wrong. One of two
	// parts at least tests the parts as steps, where the channel has parts.
	Notification func(i int) jobs.Notification
	// Taken returns how many messages the provider has taken that are m. The suite then sees by itself what only the
	// provider knows: a message that is said to be sent and is not, or is said to be not sent and is; one that goes out
	// twice for one call of Send; a key that is not honoured. Optional, but without it, or a Check that counts, the suite
	// sees little of the outside.
	Taken func(ctx context.Context, m channel.Message) (int, error)
	// Silence makes the provider answer nobody, so that each Send waits, until end is called. The suite then sees whether
	// Send returns when its context ends, and, where a provider without keys takes the message before it falls silent,
	// whether Send calls that not sent. Optional: without it the scenario is left out.
	Silence func() (end func())
	// Check is called after each scenario whose run was sent. It returns an error when something outside is not as it
	// should be. A message of an AtLeastOnce channel may be there twice. Optional.
	Check func(ctx context.Context, pool *pgxpool.Pool, run *jobs.Run, n jobs.Notification) error
	// Lease is that of the suite's processes. Defaults to 2 s; 1 s to 1 min. Longer where Send is slow, or the machine is
	// busy: a lease that runs out by itself is a takeover more than the scenario meant.
	Lease time.Duration
	// RefsVary says that an Idempotent channel may return another ExternalRef for the same key.
	RefsVary bool
}

func (c ChannelConfig) withDefaults() ChannelConfig {
	if c.Lease == 0 {
		c.Lease = defaultLease
	}
	if c.Check == nil {
		c.Check = func(context.Context, *pgxpool.Pool, *jobs.Run, jobs.Notification) error { return nil }
	}
	return c
}

func (c ChannelConfig) validate() error {
	var faults []error
	missing := func(name string, is bool) {
		if is {
			faults = append(faults, fmt.Errorf("workerstest: ChannelConfig.%s is missing", name))
		}
	}
	missing("Pool", c.Pool == nil)
	missing("Channel", c.Channel == nil)
	missing("Notification", c.Notification == nil)
	if c.Lease < time.Second || c.Lease > time.Minute {
		faults = append(faults, fmt.Errorf("workerstest: ChannelConfig.Lease = %s: must be from 1s to 1m", c.Lease))
	}
	return errors.Join(faults...)
}

// RunChannel is Run for a channel of notification deliveries: the built-in ones, or one of the application's own. A
// message that is whole is one step, and each part of one that is not is a step. It runs every scenario as a subtest, one
// after the other: about 15 s for each step.
func RunChannel(t *testing.T, cfg ChannelConfig) {
	t.Helper()
	sub, err := cfg.subject(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	s, err := newSuite(sub)
	if err != nil {
		t.Fatal(err)
	}
	s.run(t)
}
