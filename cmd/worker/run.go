package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"golang.org/x/sync/errgroup"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/internal/metrics"
	"github.com/weirqueue/weir/internal/settings"
	"github.com/weirqueue/weir/internal/ui"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
	"github.com/weirqueue/weir/workers/channel/email"
	"github.com/weirqueue/weir/workers/channel/telegram"
	"github.com/weirqueue/weir/workers/tool/desktool"
)

// RunCommand is `worker run`.
type RunCommand struct {
	settings.Worker `embed:""`
}

// Run works until ctx ends.
func (c *RunCommand) Run(ctx context.Context) error {
	if err := c.Check(); err != nil {
		return err
	}
	log := settings.NewLogger(c.Log, os.Stderr)
	slog.SetDefault(log)
	settings.WarnOfUnknown(log, os.Environ(), c.Worker, ui.Settings{})

	pool, err := c.connect(ctx)
	if err != nil {
		return err
	}
	defer pool.Close()
	channels, closeChannels, err := openChannels(c.SMTP, c.Telegram, log)
	if err != nil {
		return err
	}
	defer closeChannels()
	branches, err := openBranches(c.Branches, c.Neon, c.PGTemplate, pool.Config().ConnConfig.Database, log)
	if err != nil {
		return err
	}

	var fleet *workers.Fleet
	measured := metrics.New(func() int {
		if fleet == nil {
			return 0
		}
		return fleet.Held()
	})
	documents, err := desk.NewStore(pool)
	if err != nil {
		return err
	}
	cfg := c.config(channels, measured, log)
	cfg.Branches = branches
	cfg.Tools = desktool.New(documents).Tools()
	fleet, err = workers.New(pool, cfg)
	if err != nil {
		return err
	}
	listener, err := listen(ctx, c.HTTPAddr, log)
	if err != nil {
		return err
	}
	group, groupCtx := errgroup.WithContext(ctx)
	fleetCtx, stopFleet := context.WithCancel(groupCtx)
	defer stopFleet()
	served := make(chan struct{})
	group.Go(func() error {
		defer close(served)
		return fleet.Run(fleetCtx)
	})
	if listener != nil {
		group.Go(func() error { return serve(served, listener, fleet, measured) })
	}
	return group.Wait()
}

func (c *RunCommand) connect(ctx context.Context) (*pgxpool.Pool, error) {
	cfg, err := pgxpool.ParseConfig(c.Database.URL)
	if err != nil {
		return nil, fmt.Errorf("%w:\nDATABASE_URL: must be a PostgreSQL URL or keyword/value string", settings.ErrInvalid)
	}
	cfg.MaxConns = int32(c.PoolSize.Value()) // #nosec G115 -- validated to be at most 1000
	if cfg.ConnConfig.RuntimeParams["application_name"] == "" {
		cfg.ConnConfig.RuntimeParams["application_name"] = "weir worker"
	}
	return pgxpool.NewWithConfig(ctx, cfg)
}

func (c *RunCommand) config(channels map[string]channel.Channel, observer workers.Observer, log *slog.Logger) *workers.Config {
	return &workers.Config{
		Schema:   c.RiverSchema,
		Channels: channels,
		Delivery: workers.DeliveryConfig{
			Queue: c.DeliveryQueue, MaxWorkers: c.DeliveryWorkers.Value(),
			Lease: c.DeliveryLease.Value(), StepTime: c.DeliveryTime.Value(), ThrottleLimit: c.ThrottleLimit.Value(),
			Backoff: workers.Backoff{First: c.BackoffFirst.Value(), Max: c.BackoffMax.Value()},
		},
		Plan: workers.PlanConfig{
			Queue: c.Plans.Queue, MaxWorkers: c.Plans.Workers.Value(), Lease: c.Plans.Lease.Value(), StepTime: c.Plans.StepTime.Value(),
		},
		ReaperInterval: c.ReaperInterval.Value(), DoorbellGrace: c.DoorbellGrace.Value(), MaxReaps: c.MaxReaps.Value(),
		ShutdownGrace: c.ShutdownGrace.Value(), Retention: c.Retention.Value(), KeyRetention: c.KeyRetention.Value(), RetentionOf: c.RetentionOf.Value(),
		FetchPollInterval: c.FetchPollInterval.Value(),
		Observer:          observer, Logger: log,
	}
}

// openChannels opens what this process has settings for. What it has none for is left to other processes.
func openChannels(s settings.SMTP, t settings.Telegram, log *slog.Logger) (channels map[string]channel.Channel, closeAll func(), err error) {
	channels = map[string]channel.Channel{}
	if s.Host == "" {
		log.Warn("no WEIR_SMTP_HOST is set: this process delivers no email, and leaves it to others")
	} else if channels["email"], err = openEmail(s, log); err != nil {
		return nil, nil, err
	}
	if !t.On() {
		log.Info("no WEIR_TELEGRAM_TOKEN is set: this process delivers nothing to Telegram, and leaves it to others")
	} else if channels["telegram"], err = openTelegram(t); err != nil {
		return nil, nil, err
	}
	return channels, func() {
		for _, ch := range channels {
			if c, ok := ch.(io.Closer); ok {
				_ = c.Close()
			}
		}
	}, nil
}

func openEmail(s settings.SMTP, log *slog.Logger) (channel.Channel, error) {
	password, err := s.Secret()
	if err != nil {
		return nil, err
	}
	tls := map[string]email.TLSPolicy{"starttls": email.TLSStartTLS, "implicit": email.TLSImplicit, "none": email.TLSNone}
	mail, err := email.New(email.Config{
		Host: s.Host, Port: s.Port.Value(), From: s.From, Username: s.Username, Password: password,
		TLS: tls[s.TLS], HELO: s.Helo, SendTimeout: s.SendTimeout.Value(), MaxConns: s.MaxConns.Value(), Logger: log,
	})
	if err != nil {
		return nil, fmt.Errorf("%w:\n%w", settings.ErrInvalid, err)
	}
	return mail, nil
}

func openTelegram(t settings.Telegram) (channel.Channel, error) {
	token, err := t.Secret()
	if err != nil {
		return nil, err
	}
	ch, err := telegram.New(telegram.Config{
		Token: token, ServerURL: t.ServerURL, Timeout: t.SendTimeout.Value(),
		DialTimeout: min(t.DialTimeout.Value(), t.SendTimeout.Value()),
	})
	if err != nil { // everything else was checked with the settings
		variable := "WEIR_TELEGRAM_TOKEN"
		if t.TokenFile != "" {
			variable = "WEIR_TELEGRAM_TOKEN_FILE"
		}
		return nil, fmt.Errorf("%w:\n%s: %w", settings.ErrInvalid, variable, err)
	}
	return ch, nil
}

const defaultHTTPAddr = "127.0.0.1:8081"

// listen opens the address for health and metrics. Several processes on one machine must not need settings: without
// one, a taken port is replaced by a free one.
func listen(ctx context.Context, addr string, log *slog.Logger) (net.Listener, error) {
	if addr == "off" {
		return nil, nil //nolint:nilnil // nothing to serve is no error
	}
	var lc net.ListenConfig
	if addr != "" {
		l, err := lc.Listen(ctx, "tcp", addr)
		if err != nil {
			return nil, fmt.Errorf("WEIR_HTTP_ADDR: %w", err)
		}
		log.Info("serving health and metrics", "addr", l.Addr().String())
		return l, nil
	}
	l, err := lc.Listen(ctx, "tcp", defaultHTTPAddr)
	if err != nil {
		if l, err = lc.Listen(ctx, "tcp", "127.0.0.1:0"); err != nil {
			return nil, fmt.Errorf("WEIR_HTTP_ADDR: %w", err)
		}
	}
	log.Info("serving health and metrics", "addr", l.Addr().String())
	return l, nil
}

func serve(done <-chan struct{}, l net.Listener, fleet *workers.Fleet, measured *metrics.Metrics) error {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("ok\n")) })
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if err := fleet.Healthy(); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		_, _ = w.Write([]byte("ok\n"))
	})
	mux.Handle("GET /metrics", measured.Handler())
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second, IdleTimeout: time.Minute}
	go func() {
		<-done
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		_ = server.Shutdown(ctx)
	}()
	if err := server.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
