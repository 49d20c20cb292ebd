package workerstest_test

import (
	"context"
	"crypto/rand"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/workerstest"
)

// Each kind misbehaves in one way, and the scenario that is there for it says so. The same scenarios pass for the kind
// that behaves.
func TestRun_AKindThatMisbehavesFails(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil    func(t *testing.T, s *shop, cfg *workerstest.Config[order])
		scenario string
		want     string
	}{
		"a step commits through a connection of its own": {func(_ *testing.T, s *shop, _ *workerstest.Config[order]) {
			s.reserve = func(ctx context.Context, _ pgx.Tx, in *workers.In[order]) (int, error) {
				return reserve(ctx, s.pool, in)
			}
		}, "step 1 reserve/takeover inside", "2 reserved"},
		"a crash repeats what was committed elsewhere": {func(_ *testing.T, s *shop, _ *workerstest.Config[order]) {
			s.reserve = func(ctx context.Context, _ pgx.Tx, in *workers.In[order]) (int, error) {
				return reserve(ctx, s.pool, in)
			}
		}, "step 1 reserve/crash before", "2 reserved"},
		"an effect outside is declared transactional": {func(_ *testing.T, s *shop, _ *workerstest.Config[order]) {
			s.reserve = func(ctx context.Context, tx pgx.Tx, in *workers.In[order]) (int, error) {
				s.world.mu.Lock()
				s.world.mails[in.Run] += 2
				s.world.mu.Unlock()
				return reserve(ctx, tx, in)
			}
		}, "step 1 reserve/receipt lost", "mails"},
		"the provider does not honour the key": {func(_ *testing.T, s *shop, _ *workerstest.Config[order]) {
			s.pay = func(context.Context, *workers.In[order]) (string, error) { return rand.Text(), nil }
		}, "step 0 pay/crash before", "for the same key"},
		"the asking function finds nothing": {func(_ *testing.T, s *shop, _ *workerstest.Config[order]) {
			s.ask = func(context.Context, *workers.In[order]) (string, bool, error) { return "", false, nil }
		}, "step 3 ship/crash before", "outcome_unknown"},
		"a step needs what another left in memory": {func(_ *testing.T, s *shop, cfg *workerstest.Config[order]) {
			pay := s.pay
			cfg.Bind = func(kc workers.KindConfig) workers.Binding {
				var mu sync.Mutex
				var payment string
				mine := *s
				mine.pay = func(ctx context.Context, in *workers.In[order]) (out string, err error) {
					mu.Lock()
					defer mu.Unlock()
					payment, err = pay(ctx, in)
					return payment, err
				}
				mine.mail = func(ctx context.Context, in *workers.In[order]) (string, error) {
					mu.Lock()
					defer mu.Unlock()
					if payment == "" {
						return "", workers.Refuse("no_payment", context.Canceled)
					}
					return s.mail(ctx, in)
				}
				return mine.bind(kc)
			}
		}, "step 0 pay/takeover after", "no_payment"},
		"a function does not return when its context ends": {func(t *testing.T, s *shop, _ *workerstest.Config[order]) {
			never, first, mail := make(chan struct{}), sync.Once{}, s.mail
			t.Cleanup(func() { close(never) })
			s.mail = func(ctx context.Context, in *workers.In[order]) (string, error) {
				first.Do(func() { <-never })
				return mail(ctx, in)
			}
		}, "nothing happens", "process"},
		"a step has its effect twice without any fault": {func(_ *testing.T, s *shop, _ *workerstest.Config[order]) {
			s.reserve = func(ctx context.Context, tx pgx.Tx, in *workers.In[order]) (int, error) {
				if _, err := reserve(ctx, tx, in); err != nil {
					return 0, err
				}
				return reserve(ctx, tx, in)
			}
		}, "nothing happens", "2 reserved"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newShop(t)
			cfg := s.config()
			c.spoil(t, s, &cfg)
			errs, err := workerstest.Play(t.Context(), cfg, c.scenario)
			require.NoError(t, err)
			require.Len(t, errs, 1)
			for _, err := range errs {
				require.ErrorContains(t, err, c.want)
			}
		})
	}
}

func TestRun_IncompleteConfigurationNamesWhatIsMissing(t *testing.T) {
	t.Parallel()
	_, err := workerstest.Play(t.Context(), workerstest.Config[order]{Lease: 1}, "")
	for _, field := range []string{"Pool", "Kind", "Bind", "Payload", "Lease"} {
		require.ErrorContains(t, err, "Config."+field)
	}
}
