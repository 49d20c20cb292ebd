package workers

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/branch"
)

// BranchConfig configures branch resets.
type BranchConfig struct {
	// Providers are the providers by name, as branches are registered with them. A process without any works no resets.
	Providers map[string]branch.Provider
	// Queue is the River queue. Defaults to "weir_branch_reset", as jobs.Config.BranchQueue does.
	Queue string
	// MaxWorkers is how many calls to providers this process has under way at once. A reset that waits for its next poll
	// counts for none. Defaults to 20; 1 to 10,000.
	MaxWorkers int
	// Lease is how long this process owns a reset without renewing. Defaults to 2 min; 1 s to 1 h.
	Lease time.Duration
	// StepTime is how long one call may take: issue, look or poll. Then its context ends. Defaults to half of the lease;
	// at most 24 h. pgtemplate copies a database within one call: give it the time.
	StepTime time.Duration
	// PollFirst is the pause after a reset was issued, and PollMax the longest one between two polls; the pause grows
	// with the age of the reset. They default to 2 s and 30 s.
	PollFirst, PollMax time.Duration
	// Limit is for how long a reset is tried to be issued, and after that polled. Then it fails, with the code
	// not_accepted or limit, and its branch is free. Defaults to 1 h.
	Limit time.Duration
	// FailedLimit is for how long an operation may be failed while the provider may still try again by itself. Defaults
	// to 10 min.
	FailedLimit time.Duration
	// AskWait is for how long the provider is asked for a reset of which nobody knows whether it was issued, and for an
	// operation that it has lost. Then the reset fails with the code outcome_unknown. It must be longer than a call can be
	// on its way. Defaults to 5 min.
	AskWait time.Duration
}

func (c BranchConfig) withDefaults() BranchConfig {
	c.Providers = maps.Clone(c.Providers)
	def(&c.Queue, doorbell.QueueOf(jobs.KindBranchReset))
	def(&c.MaxWorkers, 20)
	def(&c.Lease, 2*time.Minute)
	def(&c.StepTime, c.Lease/2)
	def(&c.PollFirst, 2*time.Second)
	def(&c.PollMax, max(30*time.Second, c.PollFirst))
	def(&c.Limit, time.Hour)
	def(&c.FailedLimit, min(10*time.Minute, c.Limit))
	def(&c.AskWait, min(5*time.Minute, c.Limit))
	return c
}

func (c BranchConfig) validate() (faults []error) {
	between := func(field string, v, low, high time.Duration) {
		if v < low || v > high {
			faults = append(faults, fault("Branches."+field, v, fmt.Sprintf("from %s to %s", low, high)))
		}
	}
	if !queueName.MatchString(c.Queue) || len(c.Queue) > 64 {
		faults = append(faults, fault("Branches.Queue", c.Queue, "lower-case letters and digits, joined by - or _, at most 64 bytes"))
	}
	if c.Queue == maintenanceQueue || c.Queue == dbopsQueue {
		faults = append(faults, fault("Branches.Queue", c.Queue, "another queue than the ones of Weir's own upkeep"))
	}
	if c.MaxWorkers < 1 || c.MaxWorkers > 10_000 {
		faults = append(faults, fault("Branches.MaxWorkers", c.MaxWorkers, "from 1 to 10000"))
	}
	const most = 30 * 24 * time.Hour
	between("Lease", c.Lease, minLease, maxLease)
	between("StepTime", c.StepTime, 100*time.Millisecond, 24*time.Hour)
	between("PollFirst", c.PollFirst, 10*time.Millisecond, time.Hour)
	between("PollMax", c.PollMax, c.PollFirst, time.Hour)
	between("Limit", c.Limit, time.Second, most)
	between("FailedLimit", c.FailedLimit, time.Millisecond, c.Limit)
	between("AskWait", c.AskWait, time.Millisecond, most)
	for _, name := range slices.Sorted(maps.Keys(c.Providers)) {
		if !channelName.MatchString(name) {
			faults = append(faults, fault("Branches.Providers", name, "named by a lower-case letter, then letters, digits, - and _, at most 63 bytes"))
		}
		if c.Providers[name] == nil {
			faults = append(faults, fault("Branches.Providers."+name, nil, "a provider"))
		}
	}
	return faults
}
