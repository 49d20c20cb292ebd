package ui

import (
	"bytes"
	"context"
	"embed"
	"errors"
	"fmt"
	"html/template"
	"log/slog"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
)

//go:embed templates
var templateFiles embed.FS

// pageLimit is how long a page may wait for the database.
const pageLimit = 10 * time.Second

// pages are Weir's own pages.
type pages struct {
	pool      *pgxpool.Pool
	jobs      *jobs.Client
	logger    *slog.Logger
	templates map[string]*template.Template
}

func newPages(pool *pgxpool.Pool, client *jobs.Client, logger *slog.Logger) (*pages, error) {
	p := &pages{pool: pool, jobs: client, logger: logger, templates: map[string]*template.Template{}}
	for _, name := range []string{"runs", "run", "erase", "files", "file", "problem", "branches", "branch", "reset", "cancel", "plans", "plan", "planask"} {
		t, err := template.New(name).Funcs(words).ParseFS(templateFiles, "templates/layout.html", "templates/"+name+".html")
		if err != nil {
			return nil, fmt.Errorf("ui: template %s: %w", name, err)
		}
		p.templates[name] = t
	}
	return p, nil
}

// frame is what the layout shows around a page.
type frame struct {
	Title string
	User  User
	// Live pages refresh themselves. Says is what a screen reader hears when it changed since the last refresh.
	Live bool
	Says string
	// Desk pages run the script of documents.
	Desk bool
	// Keep says that there is nothing on the page that must not be kept for the way back.
	Keep bool
	Now  time.Time
	Body any
}

// pageFunc answers a request, or returns why it cannot.
type pageFunc func(w http.ResponseWriter, r *http.Request) error

func (p *pages) page(f pageFunc) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		ctx, cancel := context.WithTimeout(r.Context(), pageLimit)
		defer cancel()
		if err := f(w, r.WithContext(ctx)); err != nil {
			p.fail(w, r, err)
		}
	})
}

// render writes a page only once it is complete, so that a fault in a template never leaves half of one.
func (p *pages) render(w http.ResponseWriter, r *http.Request, status int, name string, f frame) error {
	f.User = UserOf(r.Context())
	var out bytes.Buffer
	if err := p.templates[name].ExecuteTemplate(&out, "layout", f); err != nil {
		return fmt.Errorf("ui: page %s: %w", name, err)
	}
	w.Header().Set("Content-Type", "text/html; charset=utf-8")
	w.Header().Set("Cache-Control", "no-store")
	if f.Keep {
		w.Header().Set("Cache-Control", "private, no-cache")
	}
	w.WriteHeader(status)
	_, _ = w.Write(out.Bytes()) // a client that left needs no answer
	return nil
}

// now is the database's clock: what the pages call "ago" and "in" agrees with the leases, whatever this clock says.
func (p *pages) now(ctx context.Context) (time.Time, error) {
	var now time.Time
	if err := p.pool.QueryRow(ctx, "select clock_timestamp()").Scan(&now); err != nil {
		return now, fmt.Errorf("ui: ask for the time: %w", err)
	}
	return now, nil
}

// pageError is a problem that has a page with a sentence for people.
type pageError struct {
	status   int
	sentence string
	run      string // links back to the run's page
}

func (e *pageError) Error() string { return e.sentence }

const (
	somethingBroke = "Something went wrong here. The log of this server says what."
	databaseDown   = "The database does not answer. If you asked for a change, it may have been made or not; asking again is safe."
	notMigrated    = "The database has no tables of this version yet. Run “worker migrate up”."
)

// statusClientLeft is for the metrics only, by nginx's number: nobody is there to read the answer.
const statusClientLeft = 499

// problemOf finds the page for an error. Only sentences written for people reach them.
func problemOf(err error) *pageError {
	var (
		page     *pageError
		state    *jobs.StateError
		invalid  *jobs.InvalidError
		postgres *pgconn.PgError
		connect  *pgconn.ConnectError
		network  net.Error
	)
	if refused := branchProblem(err); refused != nil {
		return refused
	}
	if refused := planProblem(err); refused != nil {
		return refused
	}
	switch {
	case errors.As(err, &page):
		return page
	case errors.As(err, &state):
		sentence := fmt.Sprintf("This run cannot be %s: its status is %s", pastOf(state.Op), state.Status)
		if state.Detail != "" {
			sentence += ", and " + state.Detail
		}
		return &pageError{http.StatusConflict, sentence + ". Nothing was changed.", state.Run.String()}
	case errors.Is(err, jobs.ErrNotFound):
		return &pageError{status: http.StatusNotFound, sentence: "There is no such run. It may have been cleaned away after it finished."}
	case errors.As(err, &invalid):
		return &pageError{status: http.StatusBadRequest, sentence: fmt.Sprintf("%s is %q, and must be %s.", invalid.Field, visible(invalid.Value), invalid.Bound)}
	case errors.Is(err, context.Canceled):
		return &pageError{status: statusClientLeft, sentence: "The request was given up."}
	case errors.As(err, &postgres):
		switch {
		case postgres.Code == "42P01" || postgres.Code == "3F000" || postgres.Code == "42703":
			return &pageError{status: http.StatusServiceUnavailable, sentence: notMigrated}
		// Connection exceptions, insufficient resources, operator intervention.
		case strings.HasPrefix(postgres.Code, "08"), strings.HasPrefix(postgres.Code, "53"), strings.HasPrefix(postgres.Code, "57"):
			return &pageError{status: http.StatusServiceUnavailable, sentence: databaseDown}
		}
	case errors.As(err, &connect), errors.As(err, &network), errors.Is(err, context.DeadlineExceeded), pgconn.SafeToRetry(err):
		return &pageError{status: http.StatusServiceUnavailable, sentence: databaseDown}
	}
	return &pageError{status: http.StatusInternalServerError, sentence: somethingBroke}
}

// fail answers with the page for err, and leaves the rest of it to the log.
func (p *pages) fail(w http.ResponseWriter, r *http.Request, err error) {
	problem := problemOf(err)
	if problem.status >= http.StatusInternalServerError && r.Context().Err() == nil {
		p.logger.ErrorContext(r.Context(), "Page failed", "path", r.URL.Path, "status", problem.status, "error", err)
	}
	body := struct {
		Status   int
		Heading  string
		Sentence string
		Run      string
	}{problem.status, http.StatusText(problem.status), problem.sentence, problem.run}
	if err := p.render(w, r, problem.status, "problem", frame{Title: body.Heading, Body: body}); err != nil {
		p.logger.ErrorContext(r.Context(), "The page for problems failed", "error", err)
		answerPlainly(w, http.StatusInternalServerError, somethingBroke+"\n")
	}
}

func (p *pages) notFound(http.ResponseWriter, *http.Request) error {
	return &pageError{status: http.StatusNotFound, sentence: "There is no such page."}
}
