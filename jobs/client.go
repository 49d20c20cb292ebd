package jobs

import (
	"errors"
	"fmt"
	"log/slog"
	"regexp"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/weirqueue/weir/internal/doorbell"
)

// Config configures a Client. The zero value, and nil, mean the defaults.
type Config struct {
	// Schema is where River's tables are. Defaults to what the search_path says. Weir's own are always in "weir".
	Schema string
	// DeliveryQueue is the River queue of deliveries. It must be one that the fleet works. Defaults to "weir_delivery".
	DeliveryQueue string
	// BranchQueue is the River queue of branch resets. It must be one that the fleet works. Defaults to "weir_branch_reset".
	BranchQueue string
	// Channels restricts the channels that Notify takes. Defaults to any name; "email" is always checked for a valid
	// address.
	Channels []string
	// PlanQueue is the River queue of plans. It must be one that the fleet works. Defaults to "weir_plan".
	PlanQueue string
	// Tools are the tools that plans may call. Defaults to none, so that no plan can be proposed.
	Tools []*Tool
	// Logger is for River's insert-only client. Defaults to slog.Default().
	Logger *slog.Logger
}

var (
	queueName   = regexp.MustCompile(`^(?:[a-z0-9])+(?:[_|\-]?[a-z0-9]+)*$`) // River's own rule
	schemaName  = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`)             // River's own rule
	channelName = regexp.MustCompile(`^[a-z][a-z0-9_\-]{0,62}$`)
)

func (c *Config) withDefaults() *Config {
	out := Config{}
	if c != nil {
		out = *c
	}
	if out.DeliveryQueue == "" {
		out.DeliveryQueue = doorbell.QueueOf(KindDelivery)
	}
	if out.BranchQueue == "" {
		out.BranchQueue = doorbell.QueueOf(KindBranchReset)
	}
	if out.PlanQueue == "" {
		out.PlanQueue = doorbell.QueueOf(KindPlan)
	}
	if out.Logger == nil {
		out.Logger = slog.Default()
	}
	return &out
}

func (c *Config) validate() error {
	var faults []error
	if c.Schema != "" && (!schemaName.MatchString(c.Schema) || len(c.Schema) > 46) {
		faults = append(faults, invalid("Config.Schema", c.Schema, "letters, digits and _, at most 46 bytes"))
	}
	faults = append(faults, validateQueue("Config.DeliveryQueue", c.DeliveryQueue), validateQueue("Config.BranchQueue", c.BranchQueue))
	faults = append(faults, validateQueue("Config.PlanQueue", c.PlanQueue))
	tools := map[string]bool{}
	for i, t := range c.Tools {
		if t == nil || tools[t.Name()] {
			name := ""
			if t != nil {
				name = t.Name()
			}
			faults = append(faults, invalid(fmt.Sprintf("Config.Tools[%d]", i), name, "a tool with a name of its own"))
			continue
		}
		tools[t.Name()] = true
	}
	for i, name := range c.Channels {
		if !channelName.MatchString(name) {
			faults = append(faults, invalid(fmt.Sprintf("Config.Channels[%d]", i), name, "a lower-case letter, then letters, digits, - and _, at most 63"))
		}
	}
	return errors.Join(faults...)
}

func validateQueue(field, name string) error {
	if len(name) > 64 || !queueName.MatchString(name) {
		return invalid(field, name, "lower-case letters and digits, joined by - or _, at most 64 bytes")
	}
	return nil
}

// Client enqueues, looks and controls. It runs no work. It is safe for concurrent use and holds no goroutine: there is
// nothing to close.
type Client struct {
	pool  *pgxpool.Pool
	cfg   *Config
	bells *doorbell.Bells
}

// NewClient makes a client on pool, with an insert-only River client of its own. cfg may be nil. It does not connect.
func NewClient(pool *pgxpool.Pool, cfg *Config) (*Client, error) {
	if pool == nil {
		return nil, errors.New("jobs: NewClient: the pool is nil")
	}
	c := cfg.withDefaults()
	if err := c.validate(); err != nil {
		return nil, err
	}
	riverClient, err := river.NewClient(riverpgxv5.New(pool), doorbell.ClientConfig(c.Schema, c.Logger))
	if err != nil {
		return nil, fmt.Errorf("jobs: make the River client: %w", err)
	}
	return &Client{pool: pool, cfg: c, bells: doorbell.New(riverClient)}, nil
}

// NewClientFromRiver makes a client around a River client that the application has, so that its insert hooks and
// middleware see Weir's doorbells too. The River client's schema is used. pool serves what runs outside the caller's
// transactions.
func NewClientFromRiver(riverClient *river.Client[pgx.Tx], pool *pgxpool.Pool, cfg *Config) (*Client, error) {
	if riverClient == nil || pool == nil {
		return nil, errors.New("jobs: NewClientFromRiver: the River client or the pool is nil")
	}
	c := cfg.withDefaults()
	if c.Schema != "" && c.Schema != riverClient.Schema() {
		return nil, invalid("Config.Schema", c.Schema, fmt.Sprintf("empty, or the River client's %q", riverClient.Schema()))
	}
	c.Schema = riverClient.Schema()
	if err := c.validate(); err != nil {
		return nil, err
	}
	return &Client{pool: pool, cfg: c, bells: doorbell.New(riverClient)}, nil
}
