package settings

import (
	"errors"
	"net/url"
	"os"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
)

// Branches configures branch resets. They are worked where a provider is on.
type Branches struct {
	Queue       string   `name:"queue" env:"WEIR_BRANCH_QUEUE" default:"weir_branch_reset" help:"The River queue of branch resets."`
	Workers     Int      `name:"workers" env:"WEIR_BRANCH_WORKERS" default:"20" help:"Calls to providers that this process has under way at once. A reset that waits for its next poll counts for none."`
	Lease       Duration `name:"lease" env:"WEIR_BRANCH_LEASE" default:"2m" help:"How long this process owns a reset without renewing."`
	StepTime    Duration `name:"step-time" env:"WEIR_BRANCH_STEP_TIME" default:"1m" help:"How long one call may take: issue, look or poll. pgtemplate copies a database within one: give it the time."`
	PollFirst   Duration `name:"poll-first" env:"WEIR_BRANCH_POLL_FIRST" default:"2s" help:"The pause before the first poll. Pauses grow with the age of the reset."`
	PollMax     Duration `name:"poll-max" env:"WEIR_BRANCH_POLL_MAX" default:"30s" help:"The longest pause between two polls."`
	Limit       Duration `name:"limit" env:"WEIR_BRANCH_LIMIT" default:"1h" help:"For how long a reset is tried to be issued, and after that polled. Then it fails and its branch is free."`
	FailedLimit Duration `name:"failed-limit" env:"WEIR_BRANCH_FAILED_LIMIT" default:"10m" help:"For how long an operation may be failed while the provider may still try again by itself."`
	AskWait     Duration `name:"ask-wait" env:"WEIR_BRANCH_ASK_WAIT" default:"5m" help:"For how long a provider is asked for a reset of which nobody knows whether it was issued. It must be longer than a call can be on its way."`
}

func (b *Branches) validate() error {
	const most = 720 * time.Hour
	return errors.Join(
		b.Workers.check("WEIR_BRANCH_WORKERS", 1, 10_000),
		b.Lease.check("WEIR_BRANCH_LEASE", time.Second, time.Hour),
		b.StepTime.check("WEIR_BRANCH_STEP_TIME", 100*time.Millisecond, 24*time.Hour),
		b.PollFirst.check("WEIR_BRANCH_POLL_FIRST", 10*time.Millisecond, time.Hour),
		b.PollMax.check("WEIR_BRANCH_POLL_MAX", max(b.PollFirst.d, 10*time.Millisecond), time.Hour),
		b.Limit.check("WEIR_BRANCH_LIMIT", time.Second, most),
		b.FailedLimit.check("WEIR_BRANCH_FAILED_LIMIT", time.Millisecond, max(b.Limit.d, time.Millisecond)),
		b.AskWait.check("WEIR_BRANCH_ASK_WAIT", time.Millisecond, most),
	)
}

// Neon configures the provider "neon". It is on when a key is given.
type Neon struct {
	APIKey     string   `name:"api-key" env:"WEIR_NEON_API_KEY" placeholder:"KEY" help:"A Neon API key. Empty: this process resets no branches of Neon. Never logged."`
	APIKeyFile string   `name:"api-key-file" env:"WEIR_NEON_API_KEY_FILE" placeholder:"PATH" help:"A file that holds the key instead."`
	BaseURL    string   `name:"base-url" env:"WEIR_NEON_BASE_URL" default:"https://console.neon.tech/api/v2" help:"Neon's API."`
	Timeout    Duration `name:"timeout" env:"WEIR_NEON_TIMEOUT" default:"15s" help:"Bound on one request. An issue takes up to four, which must fit into the step time."`
}

// On says whether a key is given.
func (n *Neon) On() bool { return n.APIKey != "" || n.APIKeyFile != "" }

func (n *Neon) validate(stepTime time.Duration) error {
	if !n.On() {
		return nil
	}
	faults := []error{n.Timeout.check("WEIR_NEON_TIMEOUT", 100*time.Millisecond, max(stepTime/4, 100*time.Millisecond))}
	if u, err := url.Parse(n.BaseURL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		faults = append(faults, Fault("WEIR_NEON_BASE_URL", "(not shown)", "an http or https URL without user and query, such as https://console.neon.tech/api/v2"))
	}
	if n.APIKey != "" && n.APIKeyFile != "" {
		faults = append(faults, Fault("WEIR_NEON_API_KEY_FILE", n.APIKeyFile, "empty where WEIR_NEON_API_KEY is set"))
	}
	if n.APIKeyFile != "" {
		if _, err := os.Stat(n.APIKeyFile); err != nil {
			faults = append(faults, Fault("WEIR_NEON_API_KEY_FILE", n.APIKeyFile, "a file that can be read"))
		}
	}
	return errors.Join(faults...)
}

// Secret returns the key, from the file where one is named.
func (n *Neon) Secret() (string, error) {
	return secret(n.APIKey, n.APIKeyFile, "WEIR_NEON_API_KEY_FILE")
}

// PGTemplate configures the provider "pgtemplate". It is on when a URL is given.
type PGTemplate struct {
	URL         string   `name:"url" env:"WEIR_PGTEMPLATE_URL" placeholder:"URL" help:"A database of the branches' server that is no branch, such as postgres; a direct connection, and the same in all processes. Empty: this process resets no such branches. Never logged."`
	Protected   string   `name:"protected" env:"WEIR_PGTEMPLATE_PROTECTED" placeholder:"NAMES" help:"Databases that are never reset, separated by commas. Always among them: postgres, the templates, the one of the URL, and the one of DATABASE_URL."`
	EvictParent bool     `name:"evict-parent" env:"WEIR_PGTEMPLATE_EVICT_PARENT" help:"Cut off who is connected to a parent, so that it can be copied. Without it a reset waits until nobody is."`
	Patience    Duration `name:"patience" env:"WEIR_PGTEMPLATE_PATIENCE" default:"10s" help:"For how long connections are got out of the way before a reset gives up for now."`
}

// On says whether a URL is given.
func (p *PGTemplate) On() bool { return p.URL != "" }

func (p *PGTemplate) validate(stepTime time.Duration) error {
	if !p.On() {
		return nil
	}
	faults := []error{p.Patience.check("WEIR_PGTEMPLATE_PATIENCE", 100*time.Millisecond, max(stepTime/2, 100*time.Millisecond))}
	if _, err := pgx.ParseConfig(p.URL); err != nil {
		faults = append(faults, Fault("WEIR_PGTEMPLATE_URL", "(not shown)", "a PostgreSQL URL such as postgres://user@host/postgres"))
	}
	return errors.Join(faults...)
}

// Names are the protected databases, home among them.
func (p *PGTemplate) Names(home string) []string {
	names := []string{home}
	for name := range strings.SplitSeq(p.Protected, ",") {
		if name = strings.TrimSpace(name); name != "" {
			names = append(names, name)
		}
	}
	return names
}
