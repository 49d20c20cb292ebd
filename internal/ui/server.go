// Package ui serves Weir's pages at /, the API of documents at /api/desk and River UI at /river. cmd/ui and the demo use the same handler.
//
// Everything goes through one chain: who asks, from which site, may they write. River UI has no defence of its own
// against forged cross-site requests and no read-only mode, so it stands behind that chain too.
package ui

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"
	"riverqueue.com/riverui"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/jobs"
)

const riverPrefix = "/river"

// Config configures a Server.
type Config struct {
	// Pool and Jobs are required. The caller closes the pool, after the server has stopped.
	Pool *pgxpool.Pool
	Jobs *jobs.Client
	// Schema is where River's tables are. Defaults to what the search_path says.
	Schema string
	// Auth says who asks. Nil lets everybody in, but only under a loopback name: see Listen.
	Auth Auth
	// Viewers are the names of users who may look and not write.
	Viewers []string
	// Logger defaults to slog.Default().
	Logger *slog.Logger
	// Metrics answers /metrics. Defaults to the server's own: requests, the Go runtime and the process.
	Metrics http.Handler
}

// Server is the pages and River UI. It is safe for concurrent use.
type Server struct {
	cfg     Config
	viewers map[string]bool
	river   *riverui.Handler
	pages   *pages
	store   *desk.Store
	desk    *desk.Handler
	metrics *requestMetrics
	handler http.Handler
}

// New makes a server. It does not connect to the database.
func New(cfg Config) (*Server, error) {
	if cfg.Pool == nil || cfg.Jobs == nil {
		return nil, errors.New("ui: New: Pool or Jobs is nil")
	}
	if cfg.Logger == nil {
		cfg.Logger = slog.Default()
	}
	client, err := river.NewClient(riverpgxv5.New(cfg.Pool), doorbell.ClientConfig(cfg.Schema, cfg.Logger))
	if err != nil {
		return nil, fmt.Errorf("ui: make the River client: %w", err)
	}
	// Arguments are ids only, but an application's own River jobs may hold personal data.
	riverHandler, err := riverui.NewHandler(&riverui.HandlerOpts{
		Endpoints: riverui.NewEndpoints(client, nil), Logger: cfg.Logger, Prefix: riverPrefix, JobListHideArgsByDefault: true,
	})
	if err != nil {
		return nil, fmt.Errorf("ui: make River UI: %w", err)
	}
	p, err := newPages(cfg.Pool, cfg.Jobs, cfg.Logger)
	if err != nil {
		return nil, err
	}
	store, deskHandler, err := newDesk(cfg)
	if err != nil {
		return nil, err
	}
	s := &Server{cfg: cfg, viewers: map[string]bool{}, river: riverHandler, pages: p, store: store, desk: deskHandler, metrics: newRequestMetrics()}
	for _, name := range cfg.Viewers {
		s.viewers[name] = true
	}
	if s.cfg.Metrics == nil {
		s.cfg.Metrics = s.metrics.handler()
	}
	s.handler = s.protect(s.routes())
	return s, nil
}

// Start starts what River UI does in the background. It ends with ctx.
func (s *Server) Start(ctx context.Context) error {
	if err := s.river.Start(ctx); err != nil {
		return fmt.Errorf("ui: start River UI: %w", err)
	}
	return nil
}

// Handler answers every request.
func (s *Server) Handler() http.Handler { return s.handler }

// shutdownGrace is how long requests in flight may take when the server ends.
const shutdownGrace = 10 * time.Second

// Serve starts the server and answers on l until ctx ends, then lets requests in flight finish. It closes l.
func (s *Server) Serve(ctx context.Context, l net.Listener) error {
	// Background work goes on until the last request is answered, and no longer.
	background, stop := context.WithCancel(context.WithoutCancel(ctx))
	defer stop()
	if err := s.Start(background); err != nil {
		return errors.Join(err, l.Close())
	}
	srv := &http.Server{
		Handler: s.handler,
		// A slow or silent client must not hold a connection for ever.
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       30 * time.Second,
		WriteTimeout:      60 * time.Second,
		IdleTimeout:       2 * time.Minute,
		MaxHeaderBytes:    64 << 10,
		ErrorLog:          slog.NewLogLogger(s.cfg.Logger.Handler(), slog.LevelWarn),
	}
	kept := make(chan struct{})
	go func() {
		defer close(kept)
		s.warnOfDatabase(background)
		s.store.Keep(background, s.cfg.Logger)
	}()
	defer func() { stop(); <-kept }()
	served := make(chan error, 1)
	go func() { served <- srv.Serve(l) }()
	select {
	case err := <-served:
		return fmt.Errorf("ui: serve: %w", err)
	case <-ctx.Done():
	}
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), shutdownGrace)
	defer cancel()
	s.desk.Close()
	err := srv.Shutdown(grace)
	if errors.Is(err, context.DeadlineExceeded) {
		err = srv.Close()
	}
	<-served //nolint:errcheck // the error of the shutdown says more
	if err != nil {
		return fmt.Errorf("ui: shut down: %w", err)
	}
	return nil
}

func (s *Server) routes() http.Handler {
	mux := http.NewServeMux()
	handle := func(pattern, route string, h http.Handler) { mux.Handle(pattern, s.metrics.count(route, h)) }
	page := func(pattern, route string, h pageFunc) { handle(pattern, route, s.pages.page(h)) }

	page("GET /{$}", "/", s.pages.listRuns)
	handle("GET /runs", "/runs", http.RedirectHandler("/", http.StatusFound))
	page("GET /runs/{id}", "/runs/{id}", s.pages.showRun)
	page("GET /runs/{id}/erase", "/runs/{id}/erase", s.pages.confirmErase)
	page("POST /runs/{id}/redrive", "/runs/{id}/redrive", s.pages.act(s.cfg.Jobs.Redrive))
	page("POST /runs/{id}/cancel", "/runs/{id}/cancel", s.pages.act(s.cfg.Jobs.Cancel))
	page("POST /runs/{id}/erase", "/runs/{id}/erase", s.pages.act(s.cfg.Jobs.Erase))
	page("GET /runs/{id}/cancel", "/runs/{id}/cancel", s.pages.confirmCancel)
	page("GET /branches", "/branches", s.pages.listBranches)
	page("GET /branch", "/branch", s.pages.showBranch)
	page("GET /branch/reset", "/branch/reset", s.pages.confirmReset)
	page("POST /branch/reset", "/branch/reset", s.pages.resetBranch)
	page("GET /plans", "/plans", s.pages.listPlans)
	page("GET /plans/{id}", "/plans/{id}", s.pages.showPlan)
	page("GET /plans/{id}/{do}", "/plans/{id}/{do}", s.pages.askAboutPlan)
	page("POST /plans/{id}/{do}", "/plans/{id}/{do}", s.pages.decidePlan)
	page("/", "other", s.pages.notFound)

	page("GET /files", "/files", s.listFiles)
	page("POST /files", "/files", s.createFile)
	page("GET /files/{id}", "/files/{id}", s.showFile)
	handle(desk.Prefix, desk.Prefix, s.desk)
	handle("GET /assets/{name}", "/assets/{name}", newAssets())
	handle(riverPrefix, riverPrefix, riverHeaders(s.river))
	handle(riverPrefix+"/", riverPrefix, riverHeaders(s.river))
	handle(riverPrefix+"/api/", riverPrefix+"/api", riverHeaders(s.river))
	handle("GET /healthz", "/healthz", http.HandlerFunc(healthz))
	handle("GET /readyz", "/readyz", readyz(s.cfg.Pool))
	handle("GET /metrics", "/metrics", s.cfg.Metrics)
	return mux
}
