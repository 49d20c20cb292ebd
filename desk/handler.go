package desk

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"

	_ "embed"
)

// Prefix is the path that everything of the handler is below. Mount the handler there: mux.Handle(desk.Prefix, handler).
const Prefix = "/api/desk/"

// UserHeader names, URI-encoded, the user for whom a client made its request. When somebody else has signed in since, the
// answer is 401 user_mismatch, and nothing of one user is saved as another's.
const UserHeader = "X-Desk-User"

//go:embed openapi.yaml
var openAPI []byte

// OpenAPI is the description of the handler's routes, in YAML.
func OpenAPI() []byte { return openAPI }

// HandlerConfig configures a Handler. The zero value of a field means its default.
type HandlerConfig struct {
	// Store is required.
	Store *Store
	// Identify says who asks. It is required. An error that is ErrForbidden is a 403; any other is a 401. It must not read
	// the body.
	Identify func(*http.Request) (Owner, error)
	// Rate is how many requests a second each user may make for long, and Burst how many at once. A person who types
	// makes less than one: the client's debounce leaves 40 saves a minute. Default to 5 and 100. Each process counts
	// for itself.
	Rate  float64
	Burst int
	// Timeout is how long a request may take in the database once its body has been read, the wait for a connection
	// included. Defaults to 10 seconds.
	Timeout time.Duration
	// Logger is told of faults inside. Defaults to slog.Default().
	Logger *slog.Logger
}

// maxUsers bounds the limiter's memory, at about 300 bytes each.
const maxUsers = 10_000

func (c HandlerConfig) withDefaults() HandlerConfig {
	if c.Rate == 0 {
		c.Rate = 5
	}
	if c.Burst == 0 {
		c.Burst = 100
	}
	if c.Timeout == 0 {
		c.Timeout = 10 * time.Second
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	return c
}

func (c HandlerConfig) validate() error {
	var f faults
	if c.Store == nil {
		f.add("HandlerConfig.Store", "nil", "a store")
	}
	if c.Identify == nil {
		f.add("HandlerConfig.Identify", "nil", "a function")
	}
	if c.Rate < 1 || c.Rate > 1e6 || math.IsNaN(c.Rate) {
		f.add("HandlerConfig.Rate", fmt.Sprint(c.Rate), "from 1 to 1000000 a second, or 0 for 5: normal typing makes 0.7")
	}
	if c.Burst < 1 || c.Burst > 1e6 {
		f.add("HandlerConfig.Burst", strconv.Itoa(c.Burst), "from 1 to 1000000, or 0 for 100")
	}
	if c.Timeout < 0 {
		f.add("HandlerConfig.Timeout", c.Timeout.String(), "positive, or 0 for 10s")
	}
	return f.err()
}

// Handler is the HTTP API of a store, as openapi.yaml describes it. It is safe for concurrent use.
//
// It has no defence against forged cross-site requests of its own beyond refusing bodies that are not JSON: mount it
// behind http.CrossOriginProtection, or identify users by something that a browser does not send by itself.
type Handler struct {
	cfg     HandlerConfig
	store   *Store
	limiter *limiter

	streams   streams
	closing   chan struct{}
	closeOnce sync.Once
}

// NewHandler makes a handler. The error joins all that is wrong with the configuration.
func NewHandler(cfg HandlerConfig) (*Handler, error) {
	cfg = cfg.withDefaults()
	if err := cfg.validate(); err != nil {
		return nil, err
	}
	return &Handler{cfg: cfg, store: cfg.Store, limiter: newLimiter(cfg.Rate, cfg.Burst, maxUsers), closing: make(chan struct{})}, nil
}

// call is one request of a known user on a known route.
type call struct {
	w       http.ResponseWriter
	r       *http.Request
	owner   Owner
	ids     []string // what the route's wildcards stand for
	timeout time.Duration
	ctx     context.Context // of the store; nil until it is needed
	cancel  context.CancelFunc
}

// context is for the store. Its time begins once the body has been read. What is saved is saved even when the browser
// leaves meanwhile; and a connection to the database is not thrown away for every one that does.
func (c *call) context() context.Context {
	if c.ctx == nil {
		c.ctx, c.cancel = context.WithTimeout(context.WithoutCancel(c.r.Context()), c.timeout)
	}
	return c.ctx
}

func (c *call) end() {
	if c.cancel != nil {
		c.cancel()
	}
}

// endpoint answers a call, or returns why it cannot.
type endpoint func(*call) error

// routes are matched here and not by a ServeMux, which answers paths that are not clean, such as ids with odd characters
// in them, with a redirect.
var routes = []struct {
	path    string
	methods map[string]func(*Handler) endpoint
}{
	{"files", map[string]func(*Handler) endpoint{
		http.MethodGet:  func(h *Handler) endpoint { return h.listFiles },
		http.MethodPost: func(h *Handler) endpoint { return h.createFile },
	}},
	{"files/*", map[string]func(*Handler) endpoint{
		http.MethodGet:    func(h *Handler) endpoint { return h.getFile },
		http.MethodPut:    func(h *Handler) endpoint { return h.putFile },
		http.MethodPost:   func(h *Handler) endpoint { return h.duplicateFile },
		http.MethodDelete: func(h *Handler) endpoint { return h.deleteFile },
	}},
	{"files/*/restore", map[string]func(*Handler) endpoint{
		http.MethodPost: func(h *Handler) endpoint { return h.restoreFile },
	}},
	{"files/*/saves/*", map[string]func(*Handler) endpoint{
		http.MethodGet: func(h *Handler) endpoint { return h.findSave },
	}},
	{"events", map[string]func(*Handler) endpoint{
		http.MethodGet: func(h *Handler) endpoint { return h.events },
	}},
	{"folders", map[string]func(*Handler) endpoint{
		http.MethodGet:  func(h *Handler) endpoint { return h.listFolders },
		http.MethodPost: func(h *Handler) endpoint { return h.createFolder },
	}},
	{"folders/*", map[string]func(*Handler) endpoint{
		http.MethodGet:    func(h *Handler) endpoint { return h.getFolder },
		http.MethodPut:    func(h *Handler) endpoint { return h.putFolder },
		http.MethodDelete: func(h *Handler) endpoint { return h.deleteFolder },
	}},
}

func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if err := h.serve(w, r); err != nil {
		h.fail(w, r, err)
	}
}

func (h *Handler) serve(w http.ResponseWriter, r *http.Request) error {
	owner, err := h.identify(r)
	if err != nil {
		return err
	}
	if wait := h.limiter.wait(owner, time.Now()); wait > 0 {
		return &rateError{wait}
	}
	methods, ids := match(r.URL.EscapedPath())
	if methods == nil {
		return ErrNotFound
	}
	method := r.Method
	if method == http.MethodHead {
		method = http.MethodGet
	}
	if methods[method] == nil {
		return &methodError{methods}
	}
	c := &call{w: w, r: r, owner: owner, ids: ids, timeout: h.cfg.Timeout}
	defer c.end()
	return methods[method](h)(c)
}

func (h *Handler) identify(r *http.Request) (Owner, error) {
	owner, err := h.cfg.Identify(r)
	switch {
	case errors.Is(err, ErrForbidden):
		return "", err
	case err != nil:
		return "", fmt.Errorf("%w: %w", ErrUnauthenticated, err)
	case owner.validate() != nil:
		return "", fmt.Errorf("%w: %w", ErrUnauthenticated, owner.validate())
	}
	if claimed := r.Header.Values(UserHeader); len(claimed) > 0 {
		name, err := url.PathUnescape(claimed[0])
		if err != nil || len(claimed) > 1 || Owner(name) != owner {
			return "", errUserMismatch
		}
	}
	return owner, nil
}

// match finds the methods of a path, and what its wildcards stand for.
func match(escaped string) (methods map[string]func(*Handler) endpoint, ids []string) {
	rest, ok := strings.CutPrefix(escaped, Prefix)
	if !ok {
		return nil, nil
	}
	parts := strings.Split(rest, "/")
next:
	for _, route := range routes {
		pattern := strings.Split(route.path, "/")
		if len(pattern) != len(parts) {
			continue
		}
		ids = nil
		for i, p := range pattern {
			switch {
			case p == "*":
				id, err := url.PathUnescape(parts[i])
				if err != nil {
					return nil, nil
				}
				ids = append(ids, id)
			case p != parts[i]:
				continue next
			}
		}
		return route.methods, ids
	}
	return nil, nil
}
