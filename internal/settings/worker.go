package settings

import (
	"errors"
	"fmt"
	"net"
	"net/mail"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Database is how a command reaches PostgreSQL.
type Database struct {
	URL         string `name:"database-url" env:"DATABASE_URL" placeholder:"URL" help:"PostgreSQL, as a URL or a keyword/value string. Workers and migrations need a direct connection, not a transaction pooler."`
	RiverSchema string `name:"river-schema" env:"RIVER_SCHEMA" placeholder:"NAME" help:"The schema of River's tables. Empty leaves it to the search_path. Weir's own tables are always in the schema weir."`
}

func (d Database) validate() error {
	var faults []error
	if d.URL == "" {
		faults = append(faults, Fault("DATABASE_URL", "", "a PostgreSQL URL such as postgres://user@host/database"))
	} else if _, err := pgxpool.ParseConfig(d.URL); err != nil {
		faults = append(faults, Fault("DATABASE_URL", "(not shown)", "a PostgreSQL URL such as postgres://user@host/database, or keyword=value pairs"))
	}
	if d.RiverSchema != "" && (len(d.RiverSchema) > 46 || !schemaName.MatchString(d.RiverSchema)) {
		faults = append(faults, Fault("RIVER_SCHEMA", d.RiverSchema, "letters, digits and _, at most 46 bytes"))
	}
	return errors.Join(faults...)
}

var schemaName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`) // River's own rule

// Log is how a command logs.
type Log struct {
	Level  string `name:"log-level" env:"WEIR_LOG_LEVEL" default:"info" help:"debug, info, warn or error."`
	Format string `name:"log-format" env:"WEIR_LOG_FORMAT" default:"json" help:"json or text. Logs go to standard error."`
}

func (l Log) validate() error {
	var faults []error
	if !slices.Contains([]string{"debug", "info", "warn", "error"}, l.Level) {
		faults = append(faults, Fault("WEIR_LOG_LEVEL", l.Level, "debug, info, warn or error"))
	}
	if !slices.Contains([]string{"json", "text"}, l.Format) {
		faults = append(faults, Fault("WEIR_LOG_FORMAT", l.Format, "json or text"))
	}
	return errors.Join(faults...)
}

// Worker configures `worker run`.
type Worker struct {
	Database `embed:""`
	Log      `embed:""`

	HTTPAddr string `name:"http-addr" env:"WEIR_HTTP_ADDR" placeholder:"HOST:PORT" help:"Where /healthz, /readyz and /metrics are served. Empty: 127.0.0.1:8081, or a free port when that is taken (it is logged). \"off\" serves nothing."`
	PoolSize Int    `name:"pool-size" env:"WEIR_POOL_SIZE" default:"8" help:"Connections for claims and writes; about 4 for each core of the database is enough. Heartbeats have one of their own beside it."`

	DeliveryQueue   string   `name:"delivery-queue" env:"WEIR_DELIVERY_QUEUE" default:"weir_delivery" help:"The River queue of deliveries."`
	DeliveryWorkers Int      `name:"delivery-workers" env:"WEIR_DELIVERY_WORKERS" default:"100" help:"Deliveries that this process sends at once."`
	DeliveryLease   Duration `name:"delivery-lease" env:"WEIR_DELIVERY_LEASE" default:"5m" help:"How long this process owns a delivery without renewing. It renews four times in that time."`
	DeliveryTime    Duration `name:"delivery-step-time" env:"WEIR_DELIVERY_STEP_TIME" default:"4m" help:"How long one try of a delivery may take."`
	BackoffFirst    Duration `name:"delivery-backoff-first" env:"WEIR_DELIVERY_BACKOFF_FIRST" default:"30s" help:"Span of the first delay after a failed try; it doubles with each, with full jitter."`
	BackoffMax      Duration `name:"delivery-backoff-max" env:"WEIR_DELIVERY_BACKOFF_MAX" default:"1h" help:"The longest span of a delay."`
	ThrottleLimit   Duration `name:"delivery-throttle-limit" env:"WEIR_DELIVERY_THROTTLE_LIMIT" default:"24h" help:"For how long after its creation a delivery may be put off without counting a failure."`

	ReaperInterval    Duration  `name:"reaper-interval" env:"WEIR_REAPER_INTERVAL" default:"5s" help:"How often this process looks for leases that have run out and for silent doorbells."`
	DoorbellGrace     Duration  `name:"doorbell-grace" env:"WEIR_DOORBELL_GRACE" default:"15s" help:"How long a run may be due before its doorbell is doubted."`
	MaxReaps          Int       `name:"max-reaps" env:"WEIR_MAX_REAPS" default:"5" help:"How often in a row a run's owner may vanish before the run itself is ended."`
	ShutdownGrace     Duration  `name:"shutdown-grace" env:"WEIR_SHUTDOWN_GRACE" default:"25s" help:"How long handlers may go on after SIGTERM. The process needs up to 6 s more: set the platform's own grace above the sum."`
	Retention         Duration  `name:"retention" env:"WEIR_RETENTION" default:"168h" help:"How long finished runs are kept."`
	KeyRetention      Duration  `name:"key-retention" env:"WEIR_KEY_RETENTION" default:"720h" help:"For how long after a run's end its idempotency key answers."`
	RetentionOf       Durations `name:"retention-of" env:"WEIR_RETENTION_OF" placeholder:"KIND=DURATION,..." help:"How long finished runs of these kinds are kept where it is not WEIR_RETENTION, such as plan=8760h,delivery=24h. A key answers as long as its run is there."`
	FetchPollInterval Duration  `name:"fetch-poll-interval" env:"WEIR_FETCH_POLL_INTERVAL" default:"1s" help:"River's: how late a retry may be fetched."`

	SMTP     `embed:"" prefix:"smtp-"`
	Telegram `embed:"" prefix:"telegram-"`

	Plans      `embed:"" prefix:"plan-"`
	Branches   `embed:"" prefix:"branch-"`
	Neon       `embed:"" prefix:"neon-"`
	PGTemplate `embed:"" prefix:"pgtemplate-"`
}

// SMTP configures the channel "email". It is on when a host is given.
type SMTP struct {
	Host         string   `name:"host" env:"WEIR_SMTP_HOST" placeholder:"HOST" help:"The mail server. Empty: this process delivers no email."`
	Port         Int      `name:"port" env:"WEIR_SMTP_PORT" default:"587" help:"Its port."`
	From         string   `name:"from" env:"WEIR_SMTP_FROM" placeholder:"ADDRESS" help:"The sender, such as weir@example.com. Required with a host."`
	Username     string   `name:"username" env:"WEIR_SMTP_USERNAME" placeholder:"NAME" help:"Empty: no authentication."`
	Password     string   `name:"password" env:"WEIR_SMTP_PASSWORD" placeholder:"PASSWORD" help:"Never logged."`
	PasswordFile string   `name:"password-file" env:"WEIR_SMTP_PASSWORD_FILE" placeholder:"PATH" help:"A file that holds the password instead."`
	TLS          string   `name:"tls" env:"WEIR_SMTP_TLS" default:"starttls" help:"starttls (required, never optional), implicit (TLS from the first byte) or none."`
	Helo         string   `name:"helo" env:"WEIR_SMTP_HELO" placeholder:"NAME" help:"The name in EHLO. Defaults to the host's name."`
	SendTimeout  Duration `name:"send-timeout" env:"WEIR_SMTP_SEND_TIMEOUT" default:"60s" help:"Bound on one whole conversation. It must be below the step time."`
	MaxConns     Int      `name:"max-conns" env:"WEIR_SMTP_MAX_CONNS" default:"10" help:"Connections to the server at once."`
}

// Check reports every fault. (Kong would call a method named Validate by itself, and print its usage.)
func (w *Worker) Check() error {
	faults := []error{
		w.Database.validate(), w.Log.validate(),
		w.PoolSize.check("WEIR_POOL_SIZE", 2, 1000),
		w.DeliveryWorkers.check("WEIR_DELIVERY_WORKERS", 1, 10_000),
		w.DeliveryLease.check("WEIR_DELIVERY_LEASE", time.Second, time.Hour),
		w.DeliveryTime.check("WEIR_DELIVERY_STEP_TIME", 100*time.Millisecond, 24*time.Hour),
		w.BackoffFirst.check("WEIR_DELIVERY_BACKOFF_FIRST", time.Millisecond, 24*time.Hour),
		w.BackoffMax.check("WEIR_DELIVERY_BACKOFF_MAX", max(w.BackoffFirst.d, time.Millisecond), 720*time.Hour),
		w.ThrottleLimit.check("WEIR_DELIVERY_THROTTLE_LIMIT", time.Millisecond, 8760*time.Hour),
		w.ReaperInterval.check("WEIR_REAPER_INTERVAL", 100*time.Millisecond, 5*time.Minute),
		w.DoorbellGrace.check("WEIR_DOORBELL_GRACE", 500*time.Millisecond, time.Hour),
		w.MaxReaps.check("WEIR_MAX_REAPS", 2, 100),
		w.ShutdownGrace.check("WEIR_SHUTDOWN_GRACE", time.Millisecond, 10*time.Minute),
		w.Retention.check("WEIR_RETENTION", time.Minute, 876000*time.Hour),
		w.KeyRetention.check("WEIR_KEY_RETENTION", max(w.Retention.d, time.Minute), 876000*time.Hour),
		w.RetentionOf.check("WEIR_RETENTION_OF", time.Minute, 876000*time.Hour),
		w.FetchPollInterval.check("WEIR_FETCH_POLL_INTERVAL", 10*time.Millisecond, time.Hour),
	}
	if w.HTTPAddr != "" && w.HTTPAddr != "off" {
		if _, port, err := net.SplitHostPort(w.HTTPAddr); err != nil || !isPort(port) {
			faults = append(faults, Fault("WEIR_HTTP_ADDR", w.HTTPAddr, `HOST:PORT, or "off"`))
		}
	}
	return joined(append(faults, w.SMTP.validate(w.DeliveryTime.d), w.Telegram.validate(w.DeliveryTime.d), w.Plans.validate(),
		w.Branches.validate(), w.Neon.validate(w.Branches.StepTime.d), w.PGTemplate.validate(w.Branches.StepTime.d))...)
}

func isPort(s string) bool {
	n, err := strconv.Atoi(s)
	return err == nil && n >= 0 && n <= 65535
}

func (s *SMTP) validate(stepTime time.Duration) error {
	faults := []error{
		s.Port.check("WEIR_SMTP_PORT", 1, 65535),
		s.MaxConns.check("WEIR_SMTP_MAX_CONNS", 1, 1000),
		s.SendTimeout.check("WEIR_SMTP_SEND_TIMEOUT", 100*time.Millisecond, 4*time.Minute),
	}
	if s.Host == "" {
		if s.From != "" || s.Username != "" {
			faults = append(faults, Fault("WEIR_SMTP_HOST", "", "set where WEIR_SMTP_FROM or WEIR_SMTP_USERNAME is"))
		}
		return errors.Join(faults...)
	}
	if s.SendTimeout.err == nil && s.SendTimeout.d > stepTime {
		faults = append(faults, Fault("WEIR_SMTP_SEND_TIMEOUT", s.SendTimeout.text, fmt.Sprintf("at most WEIR_DELIVERY_STEP_TIME, %s", stepTime)))
	}
	if a, err := mail.ParseAddress(s.From); err != nil || a.Address != s.From {
		faults = append(faults, Fault("WEIR_SMTP_FROM", s.From, "a plain email address such as weir@example.com"))
	}
	if !slices.Contains([]string{"starttls", "implicit", "none"}, s.TLS) {
		faults = append(faults, Fault("WEIR_SMTP_TLS", s.TLS, "starttls, implicit or none"))
	}
	if s.Password != "" && s.PasswordFile != "" {
		faults = append(faults, Fault("WEIR_SMTP_PASSWORD_FILE", s.PasswordFile, "empty where WEIR_SMTP_PASSWORD is set"))
	}
	if s.PasswordFile != "" {
		if _, err := os.Stat(s.PasswordFile); err != nil {
			faults = append(faults, Fault("WEIR_SMTP_PASSWORD_FILE", s.PasswordFile, "a file that can be read"))
		}
	}
	if (s.Password != "" || s.PasswordFile != "") && s.Username == "" {
		faults = append(faults, Fault("WEIR_SMTP_USERNAME", "", "set where a password is"))
	}
	if s.Username != "" && s.Password == "" && s.PasswordFile == "" {
		faults = append(faults, Fault("WEIR_SMTP_PASSWORD", "", "set, or WEIR_SMTP_PASSWORD_FILE, where WEIR_SMTP_USERNAME is"))
	}
	return errors.Join(faults...)
}

// Secret returns the password, from the file where one is named.
func (s *SMTP) Secret() (string, error) {
	return secret(s.Password, s.PasswordFile, "WEIR_SMTP_PASSWORD_FILE")
}

// secret is value, or what the file holds where one is named.
func secret(value, file, variable string) (string, error) {
	if file == "" {
		return value, nil
	}
	b, err := os.ReadFile(file)
	if err != nil {
		return "", fmt.Errorf("%s: %w", variable, err)
	}
	return strings.TrimRight(string(b), "\r\n"), nil
}

// ValidateMigrate reports every fault of what the migrate commands share.
func ValidateMigrate(d Database, l Log) error { return joined(d.validate(), l.validate()) }

// ValidateLog reports every fault of a Log.
func ValidateLog(l Log) error { return joined(l.validate()) }
