package workers

import (
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"regexp"
	"slices"
	"time"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/channel"
	"github.com/weirqueue/weir/workers/tool"
)

// Config configures a process of the fleet. The zero value means the defaults, but for Channels: a process without
// any delivers nothing.
type Config struct {
	// Schema is where River's tables are. Defaults to what the search_path says.
	Schema string
	// Channels are the channels of notification deliveries by name. The name "email" is the one that jobs.Email uses.
	Channels map[string]channel.Channel
	// Delivery configures notification deliveries.
	Delivery DeliveryConfig

	// Branches configures branch resets.
	Branches BranchConfig

	// Kinds are the application's own kinds that this process works; see Bind.
	Kinds []Binding

	// Tools are the tools that this process has for approved plans; see package tool. A process without any carries out no
	// plan.
	Tools []tool.Tool
	// Plan configures approved plans.
	Plan PlanConfig

	// ReaperInterval is how often this process looks for leases that have run out and for runs whose doorbell is
	// silent, with a jitter of a fifth. Defaults to 5 s; 100 ms to 5 min.
	ReaperInterval time.Duration
	// DoorbellGrace is how long a run may be due before its doorbell is doubted. Defaults to 15 s; 500 ms to 1 h.
	DoorbellGrace time.Duration
	// MaxReaps is how often in a row a run's owner may vanish before the run itself is blamed. Defaults to 5; 2 to 100.
	MaxReaps int
	// ShutdownGrace is how long handlers may go on after a stop began, before their contexts end. Defaults to 25 s;
	// at most 10 min. The process needs up to 4 s more, so the platform's own grace must be longer.
	ShutdownGrace time.Duration
	// Retention is how long finished runs are kept. Defaults to 7 days; at least 1 min. KeyRetention is how long after
	// its end an idempotency key still answers for a run that was deleted. Defaults to 30 days; at least Retention.
	Retention, KeyRetention time.Duration
	// RetentionOf is the retention of kinds for which it is another, such as a year for "plan". At least 1 min. A key answers
	// as long as its run is there.
	RetentionOf map[string]time.Duration

	// FetchCooldown and FetchPollInterval are River's. They default to 5 ms and 1 s in a Fleet.
	FetchCooldown, FetchPollInterval time.Duration

	// Observer hears what happens. Defaults to none.
	Observer Observer
	// Logger defaults to slog.Default().
	Logger *slog.Logger
}

// DeliveryConfig configures notification deliveries.
type DeliveryConfig struct {
	// Queue is the River queue. Defaults to "weir_delivery", as jobs.Config.DeliveryQueue does. The queue with "_bulk" appended
	// belongs to it. At most 59 bytes.
	Queue string
	// MaxWorkers is how many deliveries this process sends at once, those of chunks included. Defaults to 100; 1 to 10,000.
	MaxWorkers int
	// Lease is how long this process owns a delivery without renewing. Defaults to 5 min; 1 s to 1 h. It is renewed four
	// times in that time.
	Lease time.Duration
	// StepTime is how long one try may take. Then its context ends, and the lease is not renewed any more. Defaults to
	// four fifths of the lease; at most 24 h.
	StepTime time.Duration
	// Backoff spaces failed tries.
	Backoff Backoff
	// ThrottleLimit is for how long after its creation a delivery may be put off without counting a failure, because the
	// provider asked for it or our own settings are at fault. Defaults to 24 h.
	ThrottleLimit time.Duration
}

const (
	minLease = time.Second
	maxLease = time.Hour
)

func (c *Config) withDefaults() *Config {
	out := Config{}
	if c != nil {
		out = *c
	}
	out.Channels, out.RetentionOf = maps.Clone(out.Channels), maps.Clone(out.RetentionOf)
	def(&out.ReaperInterval, 5*time.Second)
	def(&out.DoorbellGrace, 15*time.Second)
	def(&out.MaxReaps, 5)
	def(&out.ShutdownGrace, 25*time.Second)
	def(&out.Retention, 7*24*time.Hour)
	def(&out.KeyRetention, max(30*24*time.Hour, out.Retention))
	def(&out.FetchCooldown, 5*time.Millisecond)
	def(&out.FetchPollInterval, max(time.Second, out.FetchCooldown))
	def(&out.Delivery.Queue, doorbell.QueueOf(jobs.KindDelivery))
	def(&out.Delivery.MaxWorkers, 100)
	def(&out.Delivery.Lease, 5*time.Minute)
	def(&out.Delivery.StepTime, out.Delivery.Lease*4/5)
	def(&out.Delivery.ThrottleLimit, 24*time.Hour)
	def(&out.Delivery.Backoff.First, 30*time.Second)
	def(&out.Delivery.Backoff.Max, max(time.Hour, out.Delivery.Backoff.First))
	out.Branches = out.Branches.withDefaults()
	out.Plan = out.Plan.withDefaults()
	if out.Observer == nil {
		out.Observer = ObserverFunc(nil)
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	return &out
}

// beat is how often this process renews leases: as often as its shortest lease asks for.
func (c *Config) beat() time.Duration {
	shortest := c.Delivery.Lease
	if len(c.Branches.Providers) > 0 {
		shortest = min(shortest, c.Branches.Lease)
	}
	for _, b := range c.Kinds {
		shortest = min(shortest, b.cfg.Lease)
	}
	if len(c.Tools) > 0 {
		shortest = min(shortest, c.Plan.Lease)
	}
	return shortest / fencing.BeatsPerLease
}

func def[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

var (
	queueName   = regexp.MustCompile(`^(?:[a-z0-9])+(?:[_|\-]?[a-z0-9]+)*$`) // River's own rule
	channelName = regexp.MustCompile(`^[a-z][a-z0-9_\-]{0,62}$`)
)

// validate reports every fault, each with the field, the value and the bound.
func (c *Config) validate() error {
	var faults []error
	between := func(field string, v, low, high time.Duration) {
		if v < low || v > high {
			faults = append(faults, fault(field, v, fmt.Sprintf("from %s to %s", low, high)))
		}
	}
	count := func(field string, v, low, high int) {
		if v < low || v > high {
			faults = append(faults, fault(field, v, fmt.Sprintf("from %d to %d", low, high)))
		}
	}
	between("ReaperInterval", c.ReaperInterval, 100*time.Millisecond, 5*time.Minute)
	between("DoorbellGrace", c.DoorbellGrace, 500*time.Millisecond, time.Hour)
	count("MaxReaps", c.MaxReaps, 2, 100)
	between("ShutdownGrace", c.ShutdownGrace, 0, 10*time.Minute)
	between("Retention", c.Retention, time.Minute, 100*365*24*time.Hour)
	between("KeyRetention", c.KeyRetention, c.Retention, 100*365*24*time.Hour)
	for _, kind := range slices.Sorted(maps.Keys(c.RetentionOf)) {
		between(fmt.Sprintf("RetentionOf[%q]", kind), c.RetentionOf[kind], time.Minute, 100*365*24*time.Hour)
	}
	between("FetchCooldown", c.FetchCooldown, time.Millisecond, time.Minute)
	between("FetchPollInterval", c.FetchPollInterval, c.FetchCooldown, time.Hour)
	if !queueName.MatchString(c.Delivery.Queue) || len(doorbell.ChunkQueue(c.Delivery.Queue)) > 64 {
		faults = append(faults, fault("Delivery.Queue", c.Delivery.Queue, "lower-case letters and digits, joined by - or _, at most 59 bytes"))
	}
	if c.Delivery.Queue == maintenanceQueue {
		faults = append(faults, fault("Delivery.Queue", c.Delivery.Queue, "another queue than the one of Weir's own upkeep"))
	}
	count("Delivery.MaxWorkers", c.Delivery.MaxWorkers, 1, 10_000)
	between("Delivery.Lease", c.Delivery.Lease, minLease, maxLease)
	between("Delivery.StepTime", c.Delivery.StepTime, 100*time.Millisecond, 24*time.Hour)
	between("Delivery.ThrottleLimit", c.Delivery.ThrottleLimit, 0, 365*24*time.Hour)
	between("Delivery.Backoff.First", c.Delivery.Backoff.First, time.Millisecond, 24*time.Hour)
	between("Delivery.Backoff.Max", c.Delivery.Backoff.Max, c.Delivery.Backoff.First, 30*24*time.Hour)
	faults = append(faults, c.Branches.validate()...)
	if !queueName.MatchString(c.Plan.Queue) || len(c.Plan.Queue) > 64 || c.Plan.Queue == maintenanceQueue {
		faults = append(faults, fault("Plan.Queue", c.Plan.Queue, "lower-case letters and digits, joined by - or _, at most 64 bytes, and not the queue of Weir's own upkeep"))
	}
	count("Plan.MaxWorkers", c.Plan.MaxWorkers, 1, 10_000)
	between("Plan.Lease", c.Plan.Lease, minLease, maxLease)
	between("Plan.StepTime", c.Plan.StepTime, 100*time.Millisecond, 24*time.Hour)
	tools := map[string]bool{}
	for i, t := range c.Tools {
		if err := t.Validate(); err != nil {
			faults = append(faults, fault(fmt.Sprintf("Tools[%d]", i), err, "a declaration with its function"))
			continue
		}
		if tools[t.Decl().Name()] {
			faults = append(faults, fault("Tools", t.Decl().Name(), "bound once"))
		}
		tools[t.Decl().Name()] = true
	}
	names := map[string]bool{}
	for _, b := range c.Kinds {
		faults = append(faults, b.validate())
		if b.name != "" && names[b.name] {
			faults = append(faults, fault("Kinds", b.name, "bound once"))
		}
		names[b.name] = true
	}
	for _, name := range slices.Sorted(maps.Keys(c.Channels)) {
		if !channelName.MatchString(name) {
			faults = append(faults, fault("Channels", name, "named by a lower-case letter, then letters, digits, - and _, at most 63 bytes"))
		}
		if ch := c.Channels[name]; ch == nil {
			faults = append(faults, fault("Channels."+name, nil, "a channel"))
		} else if e := ch.Effect(); e != channel.AtLeastOnce && e != channel.Idempotent {
			faults = append(faults, fault("Channels."+name+".Effect", e, "at_least_once or idempotent"))
		}
	}
	return errors.Join(faults...)
}

// ErrInvalidConfig is what every fault of a Config matches.
var ErrInvalidConfig = errors.New("workers: invalid configuration")

func fault(field string, value any, bound string) error {
	return fmt.Errorf("%w: Config.%s = %v: must be %s", ErrInvalidConfig, field, value, bound)
}
