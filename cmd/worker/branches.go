package main

import (
	"fmt"
	"log/slog"

	"github.com/weirqueue/weir/internal/settings"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/branch"
	"github.com/weirqueue/weir/workers/branch/neon"
	"github.com/weirqueue/weir/workers/branch/pgtemplate"
)

// openBranches opens the providers that this process has settings for. What it has none for is left to other processes.
// home is the database that Weir lives in: it is never reset.
func openBranches(b settings.Branches, n settings.Neon, p settings.PGTemplate, home string, log *slog.Logger) (workers.BranchConfig, error) {
	cfg := workers.BranchConfig{
		Providers: map[string]branch.Provider{}, Queue: b.Queue, MaxWorkers: b.Workers.Value(), Lease: b.Lease.Value(), StepTime: b.StepTime.Value(),
		PollFirst: b.PollFirst.Value(), PollMax: b.PollMax.Value(), Limit: b.Limit.Value(), FailedLimit: b.FailedLimit.Value(), AskWait: b.AskWait.Value(),
	}
	if n.On() {
		key, err := n.Secret()
		if err != nil {
			return cfg, err
		}
		provider, err := neon.New(neon.Config{APIKey: key, BaseURL: n.BaseURL, Timeout: n.Timeout.Value()})
		if err != nil {
			return cfg, fmt.Errorf("%w:\n%w", settings.ErrInvalid, err)
		}
		cfg.Providers[jobs.ProviderNeon] = provider
	}
	if p.On() {
		provider, err := pgtemplate.New(pgtemplate.Config{
			URL: p.URL, Protected: p.Names(home), EvictTemplate: p.EvictParent, Patience: p.Patience.Value(),
		})
		if err != nil {
			return cfg, fmt.Errorf("%w:\n%w", settings.ErrInvalid, err)
		}
		cfg.Providers[jobs.ProviderPGTemplate] = provider
	}
	if len(cfg.Providers) == 0 {
		log.Info("no WEIR_NEON_API_KEY and no WEIR_PGTEMPLATE_URL is set: this process resets no branches, and leaves them to others")
	}
	return cfg, nil
}
