package workers

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/channel"
)

type anyChannel struct{ effect channel.Effect }

func (c anyChannel) Effect() channel.Effect { return c.effect }

func (anyChannel) Send(context.Context, channel.Message) (channel.Sent, error) {
	return channel.Sent{}, nil
}

// unconnected is a pool that is never used.
func unconnected(t *testing.T) *pgxpool.Pool {
	t.Helper()
	pool, err := pgxpool.New(t.Context(), "postgres://nobody@127.0.0.1:1/none")
	require.NoError(t, err)
	t.Cleanup(pool.Close)
	return pool
}

func TestConfig_ReportsAllFaultsAtOnceEachWithFieldValueAndBound(t *testing.T) {
	t.Parallel()
	kind := jobs.MustKind[int]("numbers", jobs.KindConfig{Steps: []jobs.Step{{Name: "add", Effect: jobs.AtLeastOnce}}})
	add := AtLeastOnce("add", func(context.Context, *In[int]) (any, error) { return nil, nil })
	bad := &Config{
		Channels: map[string]channel.Channel{
			"Upper": anyChannel{channel.AtLeastOnce}, "none": nil, "odd": anyChannel{"sometimes"},
		},
		Delivery: DeliveryConfig{
			Queue: "no spaces", MaxWorkers: 10_001, Lease: 999 * time.Millisecond, StepTime: 25 * time.Hour,
			ThrottleLimit: -time.Second, Backoff: Backoff{First: 2 * time.Hour, Max: time.Hour},
		},
		Kinds: []Binding{
			Bind(kind, KindConfig{Queue: "-x", MaxWorkers: -1, Lease: 2 * time.Hour, StepTime: time.Millisecond, Backoff: Backoff{First: -1, Max: -2}}, add),
			Bind(kind, KindConfig{}, add),
			{},
		},
		ReaperInterval: 99 * time.Millisecond, DoorbellGrace: 2 * time.Hour, MaxReaps: 1, ShutdownGrace: 11 * time.Minute,
		Retention: time.Second, KeyRetention: time.Millisecond, RetentionOf: map[string]time.Duration{"plan": time.Second}, FetchCooldown: time.Microsecond, FetchPollInterval: 2 * time.Hour,
	}
	want := []string{
		"Config.ReaperInterval = 99ms: must be from 100ms to 5m0s",
		"Config.DoorbellGrace = 2h0m0s: must be from 500ms to 1h0m0s",
		"Config.MaxReaps = 1: must be from 2 to 100",
		"Config.ShutdownGrace = 11m0s: must be from 0s to 10m0s",
		"Config.Retention = 1s: must be from 1m0s to 876000h0m0s",
		`Config.RetentionOf["plan"] = 1s: must be from 1m0s to 876000h0m0s`,
		"Config.KeyRetention = 1ms: must be from 1s to 876000h0m0s",
		"Config.FetchCooldown = 1µs: must be from 1ms to 1m0s",
		"Config.FetchPollInterval = 2h0m0s: must be from 1µs to 1h0m0s",
		"Config.Delivery.Queue = no spaces: must be lower-case letters and digits, joined by - or _, at most 59 bytes",
		"Config.Delivery.MaxWorkers = 10001: must be from 1 to 10000",
		"Config.Delivery.Lease = 999ms: must be from 1s to 1h0m0s",
		"Config.Delivery.StepTime = 25h0m0s: must be from 100ms to 24h0m0s",
		"Config.Delivery.ThrottleLimit = -1s: must be from 0s to 8760h0m0s",
		"Config.Delivery.Backoff.Max = 1h0m0s: must be from 2h0m0s to 720h0m0s",
		"Config.Kinds.numbers.Queue = -x: must be lower-case letters and digits",
		"Config.Kinds.numbers.MaxWorkers = -1: must be from 1 to 10000",
		"Config.Kinds.numbers.Lease = 2h0m0s: must be from 1s to 1h0m0s",
		"Config.Kinds.numbers.StepTime = 1ms: must be from 100ms to 24h0m0s",
		"Config.Kinds.numbers.Backoff.First = -1ns: must be from 1ms to 24h0m0s",
		"Config.Kinds.numbers.Backoff.Max = -2ns: must be from -1ns to 720h0m0s",
		"Config.Kinds = numbers: must be bound once",
		"Config.Kinds = Binding{}: must be made by Bind",
		"Config.Channels = Upper: must be named by a lower-case letter",
		"Config.Channels.none = <nil>: must be a channel",
		"Config.Channels.odd.Effect = sometimes: must be at_least_once or idempotent",
	}
	pool := unconnected(t)
	_, newErr := New(pool, bad)
	_, registerErr := Register(river.NewWorkers(), pool, bad)
	for _, err := range []error{newErr, registerErr} {
		require.ErrorIs(t, err, ErrInvalidConfig)
		for _, fault := range want {
			require.ErrorContains(t, err, fault)
		}
		require.Len(t, strings.Split(strings.TrimSpace(err.Error()), "\n"), len(want), "one line a fault, and no other:\n%s", err)
	}
}

func TestConfig_TheMaintenanceQueueIsNotForDeliveries(t *testing.T) {
	t.Parallel()
	_, err := New(unconnected(t), &Config{Delivery: DeliveryConfig{Queue: "weir_maintenance"}})
	require.ErrorContains(t, err, "Config.Delivery.Queue = weir_maintenance: must be another queue")
}

// Each bound itself is allowed.
func TestConfig_BoundsAreInclusive(t *testing.T) {
	t.Parallel()
	for _, c := range []*Config{
		nil,
		{},
		{
			ReaperInterval: 100 * time.Millisecond, DoorbellGrace: 500 * time.Millisecond, MaxReaps: 2, Retention: time.Minute, KeyRetention: time.Minute,
			FetchCooldown: time.Millisecond, FetchPollInterval: time.Millisecond,
			Delivery: DeliveryConfig{Queue: strings.Repeat("q", 59), MaxWorkers: 1, Lease: time.Second, StepTime: 100 * time.Millisecond, Backoff: Backoff{First: time.Millisecond, Max: time.Millisecond}},
		},
		{
			ReaperInterval: 5 * time.Minute, DoorbellGrace: time.Hour, MaxReaps: 100, ShutdownGrace: 10 * time.Minute,
			FetchCooldown: time.Minute, FetchPollInterval: time.Hour,
			Delivery: DeliveryConfig{MaxWorkers: 10_000, Lease: time.Hour, StepTime: 24 * time.Hour, ThrottleLimit: 365 * 24 * time.Hour, Backoff: Backoff{First: 24 * time.Hour, Max: 30 * 24 * time.Hour}},
		},
	} {
		require.NoError(t, c.withDefaults().validate())
	}
}

func TestConfig_Defaults(t *testing.T) {
	t.Parallel()
	got := (*Config)(nil).withDefaults()
	require.NotPanics(t, func() { got.Observer.Observe(t.Context(), Heartbeat{}) })
	require.Same(t, slog.Default(), got.Logger)
	got.Observer, got.Logger = nil, nil
	require.Equal(t, &Config{
		ReaperInterval: 5 * time.Second, DoorbellGrace: 15 * time.Second, MaxReaps: 5, ShutdownGrace: 25 * time.Second,
		Retention: 7 * 24 * time.Hour, KeyRetention: 30 * 24 * time.Hour, FetchCooldown: 5 * time.Millisecond, FetchPollInterval: time.Second,
		Delivery: DeliveryConfig{
			Queue: "weir_delivery", MaxWorkers: 100, Lease: 5 * time.Minute, StepTime: 4 * time.Minute, ThrottleLimit: 24 * time.Hour,
			Backoff: Backoff{First: 30 * time.Second, Max: time.Hour},
		},
		Branches: BranchConfig{
			Queue: "weir_branch_reset", MaxWorkers: 20, Lease: 2 * time.Minute, StepTime: time.Minute, PollFirst: 2 * time.Second,
			PollMax: 30 * time.Second, Limit: time.Hour, FailedLimit: 10 * time.Minute, AskWait: 5 * time.Minute,
		},
		Plan: PlanConfig{Queue: "weir_plan", MaxWorkers: 20, Lease: 2 * time.Minute, StepTime: 2 * time.Minute},
	}, got)

	// What depends on another field follows it.
	got = (&Config{
		Retention: 60 * 24 * time.Hour, FetchCooldown: 2 * time.Second,
		Delivery: DeliveryConfig{Lease: 10 * time.Second, Backoff: Backoff{First: 2 * time.Hour}},
	}).withDefaults()
	require.Equal(t, got.Retention, got.KeyRetention)
	require.Equal(t, 2*time.Second, got.FetchPollInterval)
	require.Equal(t, 8*time.Second, got.Delivery.StepTime)
	require.Equal(t, 2*time.Hour, got.Delivery.Backoff.Max)
	require.NoError(t, got.validate())
}

// The caller's Config is his own: what he changes after New changes nothing, and New changes nothing of his.
func TestConfig_IsCopied(t *testing.T) {
	t.Parallel()
	mine := &Config{Channels: map[string]channel.Channel{"a": anyChannel{channel.AtLeastOnce}}}
	got := mine.withDefaults()
	mine.Channels["b"] = nil
	require.Len(t, got.Channels, 1)
	require.Zero(t, mine.MaxReaps)
}

func TestConfig_HeartbeatIsAQuarterOfTheShortestLease(t *testing.T) {
	t.Parallel()
	require.Equal(t, 75*time.Second, (&Config{}).withDefaults().beat())
	c := (&Config{Delivery: DeliveryConfig{Lease: 20 * time.Second}}).withDefaults()
	require.Equal(t, 5*time.Second, c.beat())
	kind := jobs.MustKind[int]("numbers", jobs.KindConfig{Steps: []jobs.Step{{Name: "add", Effect: jobs.AtLeastOnce}}})
	add := AtLeastOnce("add", func(context.Context, *In[int]) (any, error) { return nil, nil })
	for lease, want := range map[time.Duration]time.Duration{8 * time.Second: 2 * time.Second, time.Minute: 5 * time.Second} {
		c.Kinds = []Binding{Bind(kind, KindConfig{Lease: lease}, add)}
		require.Equal(t, want, c.beat())
	}
}

func TestNew_WithoutAPoolSaysSo(t *testing.T) {
	t.Parallel()
	_, err := New(nil, nil)
	require.ErrorContains(t, err, "the pool is nil")
	_, err = Register(nil, unconnected(t), nil)
	require.Error(t, err)
	require.False(t, errors.Is(err, ErrInvalidConfig))
}
