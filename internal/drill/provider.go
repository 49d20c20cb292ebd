package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// provider is what is outside: an HTTP service that takes idempotency keys and can be asked. Some of its answers are
// late, and some never arrive.
type provider struct {
	server   *http.Server
	listener net.Listener

	mu  sync.Mutex
	rng *rand.Rand
	// done is how often a thing was done, by its path and key; calls is how often it was asked for.
	done, calls map[string]int
	lost        int
}

// hosting is the part of a subject whose effects are outside: a provider in the parent, and the name under which its workers
// learn where it is.
type hosting struct {
	seed     uint64
	env      string
	provider *provider
}

// Setup starts the provider.
func (h *hosting) Setup(context.Context, *pgxpool.Pool) (env map[string]string, err error) {
	if h.provider, err = startProvider(h.seed); err != nil {
		return nil, err
	}
	return map[string]string{h.env: h.provider.url()}, nil
}

// Close ends it, if it was started.
func (h *hosting) Close() error {
	if h.provider == nil {
		return nil
	}
	return h.provider.close()
}

func startProvider(seed uint64) (*provider, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0") //nolint:noctx // a loopback address is there at once
	if err != nil {
		return nil, fmt.Errorf("drill: %w", err)
	}
	p := &provider{listener: l, rng: rand.New(rand.NewPCG(seed, 7)), done: map[string]int{}, calls: map[string]int{}} // #nosec G404 -- a seed is to be repeated
	mux := http.NewServeMux()
	mux.HandleFunc("POST /once/{key}", func(w http.ResponseWriter, r *http.Request) { p.act(w, "once/"+r.PathValue("key"), true) })
	mux.HandleFunc("POST /each/{key}", func(w http.ResponseWriter, r *http.Request) { p.act(w, "each/"+r.PathValue("key"), false) })
	mux.HandleFunc("GET /each/{key}", func(w http.ResponseWriter, r *http.Request) { p.ask(w, "each/"+r.PathValue("key")) })
	mux.HandleFunc("GET /poll/{key}", func(w http.ResponseWriter, r *http.Request) { p.poll(w, "poll/"+r.PathValue("key")) })
	p.server = &http.Server{Handler: mux, ReadHeaderTimeout: 5 * time.Second}
	go func() { _ = p.server.Serve(l) }()
	return p, nil
}

func (p *provider) url() string { return "http://" + p.listener.Addr().String() }

// act does a thing, and may lose the answer before or after it.
func (p *provider) act(w http.ResponseWriter, key string, once bool) {
	p.mu.Lock()
	late := time.Duration(p.rng.IntN(60)) * time.Millisecond
	chance := p.rng.IntN(200)
	p.calls[key]++
	p.mu.Unlock()
	time.Sleep(late)
	p.mu.Lock()
	if chance == 0 { // it breaks down before
		p.mu.Unlock()
		http.Error(w, "out of order", http.StatusInternalServerError)
		return
	}
	if !once || p.done[key] == 0 {
		p.done[key]++
	}
	n := p.done[key]
	if chance == 1 {
		p.lost++
	}
	p.mu.Unlock()
	if chance == 1 { // it is done, and nobody hears of it
		panic(http.ErrAbortHandler)
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"key": key, "n": n})
}

func (p *provider) ask(w http.ResponseWriter, key string) {
	p.mu.Lock()
	n := p.done[key]
	p.mu.Unlock()
	if n == 0 {
		http.NotFound(w, nil)
		return
	}
	_ = json.NewEncoder(w).Encode(map[string]any{"key": key, "n": n})
}

// poll says how often it was asked, itself included. It takes its time: between two polls nobody owns the run, and what
// is done to a worker then hits nothing.
func (p *provider) poll(w http.ResponseWriter, key string) {
	p.mu.Lock()
	late := time.Duration(p.rng.IntN(500)) * time.Millisecond
	p.mu.Unlock()
	time.Sleep(late)
	p.mu.Lock()
	p.calls[key]++
	n := p.calls[key]
	p.mu.Unlock()
	_ = json.NewEncoder(w).Encode(map[string]any{"key": key, "n": n})
}

func (p *provider) times(key string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.done[key]
}

func (p *provider) close() error { return p.server.Close() }
