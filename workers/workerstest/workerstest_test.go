package workerstest_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/workerstest"
)

type order struct {
	Number int `json:"number"`
}

var shopKind = jobs.MustKind[order]("shop", jobs.KindConfig{Steps: []jobs.Step{
	{Name: "pay", Effect: jobs.Idempotent},
	{Name: "reserve", Effect: jobs.Transactional},
	{Name: "count", Effect: jobs.Transactional},
	{Name: "ship", Effect: jobs.Reconciled},
	{Name: "mail", Effect: jobs.AtLeastOnce},
}})

// world is what is outside: it outlives every process.
type world struct {
	mu       sync.Mutex
	payments map[string]string
	parcels  map[string]int
	mails    map[jobs.RunID]int
}

func newWorld() *world {
	return &world{payments: map[string]string{}, parcels: map[string]int{}, mails: map[jobs.RunID]int{}}
}

// shop is the kind, and how it may misbehave.
type shop struct {
	world   *world
	pool    *pgxpool.Pool
	pay     func(context.Context, *workers.In[order]) (string, error)
	reserve func(context.Context, pgx.Tx, *workers.In[order]) (int, error)
	ask     func(context.Context, *workers.In[order]) (string, bool, error)
	mail    func(context.Context, *workers.In[order]) (string, error)
}

func newShop(t *testing.T) *shop {
	pool := pgtest.Pool(t)
	_, err := pool.Exec(t.Context(), `create table stock (id int primary key, n int); insert into stock values (1, 10000);
		create table reserved (number int, run uuid); create table counted (number int)`)
	require.NoError(t, err)
	s := &shop{world: newWorld(), pool: pool}
	w := s.world
	s.pay = func(_ context.Context, in *workers.In[order]) (string, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		if w.payments[in.Key] == "" {
			w.payments[in.Key] = fmt.Sprintf("pay-%d", len(w.payments))
		}
		return w.payments[in.Key], nil
	}
	s.reserve = func(ctx context.Context, tx pgx.Tx, in *workers.In[order]) (int, error) { return reserve(ctx, tx, in) }
	s.ask = func(_ context.Context, in *workers.In[order]) (string, bool, error) {
		w.mu.Lock()
		defer w.mu.Unlock()
		return "parcel " + in.Key, w.parcels[in.Key] > 0, nil
	}
	s.mail = func(_ context.Context, in *workers.In[order]) (string, error) {
		var payment string
		if err := in.Output("pay", &payment); err != nil {
			return "", err
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.mails[in.Run]++
		return "mailed " + payment, nil
	}
	return s
}

type queries interface {
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
}

func reserve(ctx context.Context, db queries, in *workers.In[order]) (left int, err error) {
	err = db.QueryRow(ctx, `with r as (insert into reserved values ($1, $2)) update stock set n = n - 1 where id = 1 returning n`,
		in.Payload.Number, in.Run).Scan(&left)
	return left, err
}

func (s *shop) bind(cfg workers.KindConfig) workers.Binding {
	return workers.Bind(shopKind, cfg,
		workers.Idempotent("pay", s.pay),
		workers.Transactional("reserve", s.reserve),
		workers.Statement("count", func(_ context.Context, in *workers.In[order]) (workers.SQL, error) {
			return workers.SQL{Text: "insert into counted values ($1) returning number", Args: []any{in.Payload.Number}}, nil
		}),
		workers.Reconciled("ship", func(_ context.Context, in *workers.In[order]) (string, error) {
			s.world.mu.Lock()
			defer s.world.mu.Unlock()
			s.world.parcels[in.Key]++
			return "parcel " + in.Key, nil
		}, s.ask),
		workers.AtLeastOnce("mail", s.mail),
	)
}

func (s *shop) check(ctx context.Context, pool *pgxpool.Pool, run *jobs.Run, o order) error {
	var reserved, counted int
	err := pool.QueryRow(ctx, "select (select count(*) from reserved where number = $1), (select count(*) from counted where number = $1)", o.Number).
		Scan(&reserved, &counted)
	if err != nil {
		return err
	}
	s.world.mu.Lock()
	defer s.world.mu.Unlock()
	if mails := s.world.mails[run.ID]; mails < 1 || mails > 2 {
		err = fmt.Errorf("%d mails", mails)
	}
	if reserved != 1 || counted != 1 {
		err = errors.Join(err, fmt.Errorf("%d reserved, %d counted", reserved, counted))
	}
	if n := s.world.parcels[run.ID.String()+":3"]; n != 1 {
		err = errors.Join(err, fmt.Errorf("%d parcels", n))
	}
	return err
}

func (s *shop) config() workerstest.Config[order] {
	return workerstest.Config[order]{
		Pool: s.pool, Kind: shopKind, Bind: s.bind, Payload: func(i int) order { return order{i} }, Check: s.check,
	}
}

func TestRun_AKindThatBehavesPasses(t *testing.T) {
	t.Parallel()
	workerstest.RunParts(t, func(t *testing.T) workerstest.Config[order] { return newShop(t).config() })
}
