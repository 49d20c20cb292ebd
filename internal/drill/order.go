package drill

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
)

// order is the drill's own kind: one step of each effect and form.
type order struct {
	N int64 `json:"n"`
	// Pauses are how long each step takes, in ms.
	Pauses [6]int `json:"pauses"`
	// Hang: the first owner's call of the outside step ignores its context until long after its deadline.
	Hang bool `json:"hang"`
	// Slow: the first owner's call takes longer than a lease, and not too long: only renewals keep the run.
	Slow bool `json:"slow"`
}

var orderKind = jobs.MustKind[order]("drill_order", jobs.KindConfig{
	MaxAttempts: 100, Queue: "weir_drill_order",
	Steps: []jobs.Step{
		{Name: "reserve", Effect: jobs.Transactional},
		{Name: "charge", Effect: jobs.Idempotent},
		{Name: "book", Effect: jobs.Transactional},
		{Name: "tell", Effect: jobs.AtLeastOnce},
		{Name: "ship", Effect: jobs.Reconciled},
		{Name: "close", Effect: jobs.Transactional},
	},
})

const (
	stepReserve = iota
	stepCharge
	stepBook
	stepTell
	stepShip
	stepClose
)

// orders is the subject.
type orders struct {
	hosting
	rng *rand.Rand
}

func newOrders(seed uint64) *orders {
	return &orders{hosting: hosting{seed: seed, env: envProvider}, rng: rand.New(rand.NewPCG(seed, 11))} // #nosec G404 -- a seed is to be repeated
}

func (*orders) Name() string { return "order" }
func (*orders) Kind() string { return orderKind.Name() }

const envProvider = "provider"

func (o *orders) Enqueue(ctx context.Context, tx pgx.Tx, client *jobs.Client, n int64) (jobs.RunID, error) {
	p := order{N: n, Hang: o.rng.IntN(60) == 0, Slow: o.rng.IntN(20) == 0}
	for i := range p.Pauses {
		p.Pauses[i] = 10 + o.rng.IntN(140)
	}
	res, err := client.EnqueueTx(ctx, tx, orderKind.Of(p), nil)
	if err != nil {
		return jobs.RunID{}, err
	}
	return res.Run.ID, nil
}

func (*orders) Work(cfg *workers.Config, env map[string]string, limits Limits) error {
	out := outside{url: env[envProvider], client: &http.Client{Timeout: limits.StepTime}, stepTime: limits.StepTime}
	cfg.Kinds = append(cfg.Kinds, workers.Bind(orderKind, workers.KindConfig{
		MaxWorkers: limits.MaxWorkers, Lease: limits.Lease, StepTime: limits.StepTime, Backoff: limits.Backoff,
	},
		workers.Transactional("reserve", insertEffect),
		workers.Idempotent("charge", func(ctx context.Context, in *workers.In[order]) (string, error) {
			if in.Payload.Slow && in.Attempt == 1 {
				time.Sleep(limits.Lease * 5 / 4)
			}
			return out.post(ctx, in, "once/"+in.Key)
		}),
		workers.Statement("book", func(ctx context.Context, in *workers.In[order]) (workers.SQL, error) {
			if err := pause(ctx, in); err != nil {
				return workers.SQL{}, err
			}
			return workers.SQL{
				Text: "insert into weir_drill.effect (run_id, step, attempt) values ($1, $2, $3) returning step",
				Args: []any{in.Run, in.Step, in.Attempt},
			}, nil
		}),
		workers.AtLeastOnce("tell", func(ctx context.Context, in *workers.In[order]) (string, error) {
			if in.Payload.Hang && in.Attempt == 1 {
				time.Sleep(2*out.stepTime + limits.Lease) // it does not look at its context
			}
			return out.post(ctx, in, "each/"+in.Key)
		}),
		workers.Reconciled("ship", func(ctx context.Context, in *workers.In[order]) (string, error) {
			return out.post(ctx, in, "each/"+in.Key)
		}, out.asked),
		workers.Transactional("close", insertEffect),
	))
	return nil
}

func pause(ctx context.Context, in *workers.In[order]) error {
	return pauseFor(ctx, in.Payload.Pauses[in.Step])
}

func pauseFor(ctx context.Context, ms int) error {
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(time.Duration(ms) * time.Millisecond):
		return nil
	}
}

// insertEffect is a live step. It pauses with its effect written and nothing committed.
func insertEffect(ctx context.Context, tx pgx.Tx, in *workers.In[order]) (int, error) {
	if _, err := tx.Exec(ctx, "insert into weir_drill.effect (run_id, step, attempt) values ($1, $2, $3)", in.Run, in.Step, in.Attempt); err != nil {
		return 0, err
	}
	return in.Step, pause(ctx, in)
}

// outside reaches the provider.
type outside struct {
	url      string
	client   *http.Client
	stepTime time.Duration
}

func (o outside) post(ctx context.Context, in *workers.In[order], path string) (string, error) {
	if err := pause(ctx, in); err != nil {
		return "", workers.NotSent(err)
	}
	return o.do(ctx, http.MethodPost, path)
}

func (o outside) do(ctx context.Context, method, path string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, method, o.url+"/"+path, nil)
	if err != nil {
		return "", workers.NotSent(err)
	}
	res, err := o.client.Do(req)
	if err != nil {
		return "", err
	}
	defer res.Body.Close()
	switch res.StatusCode {
	case http.StatusOK:
		var said struct {
			Key string `json:"key"`
		}
		err := json.NewDecoder(io.LimitReader(res.Body, 1<<16)).Decode(&said)
		return said.Key, err
	case http.StatusNotFound:
		return "", errNothing
	case http.StatusInternalServerError: // the provider's word that nothing was done
		return "", workers.NotSent(fmt.Errorf("the provider answers %s", res.Status))
	}
	return "", fmt.Errorf("the provider answers %s", res.Status)
}

var errNothing = fmt.Errorf("the provider knows nothing of it")

func (o outside) asked(ctx context.Context, in *workers.In[order]) (string, bool, error) {
	ref, err := o.do(ctx, http.MethodGet, "each/"+in.Key)
	if err == errNothing { //nolint:errorlint // its own, and not wrapped
		return "", false, nil
	}
	return ref, err == nil, err
}

// Check compares the receipts with the effects, in the database and at the provider.
func (o *orders) Check(ctx context.Context, pool *pgxpool.Pool, records *Records) (Effects, error) {
	var all Effects
	for _, run := range records.Runs(orderKind.Name()) {
		// Only a parcel that may be on its way, and that the provider does not know of, ends an order.
		all.Faults = append(all.Faults, run.unexplained(run.Unknown[stepShip] > 0)...)
		for i, name := range []string{"once", "each", "each"} {
			step := []int{stepCharge, stepTell, stepShip}[i]
			key := fmt.Sprintf("%s/%s:%d", name, run.ID, step)
			allowed := 1
			if step == stepTell {
				allowed += run.Unknown[step]
			}
			all.add(run.outside(step, o.provider.times(key), allowed))
		}
		for _, step := range []int{stepReserve, stepBook, stepClose} {
			all.add(run.inDatabase(step))
		}
	}
	return all, nil
}
