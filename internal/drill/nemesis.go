package drill

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/postgres"
)

// Fault is something that was done to a worker, or to all.
type Fault struct {
	What string `json:"fault"`
	// Worker is empty when it was done to the database.
	Worker string    `json:"worker,omitempty"`
	From   time.Time `json:"from"`
	Until  time.Time `json:"until"`
	// Runs are those whose rows were locked.
	Runs []string `json:"runs,omitempty"`
}

// The faults.
const (
	faultKill      = "kill"
	faultStop      = "stop"           // at any moment
	faultStopBegin = "stop in step"   // inside the transaction of a step
	faultStopHold  = "stop in commit" // the COMMIT has not left
	faultStopAfter = "stop at commit" // the COMMIT is on its way
	faultStopWrite = "stop in write"  // a claim, or the end of a try
	faultStopBeat  = "stop in beat"
	faultCut       = "cut"
	faultCutBefore = "cut before commit"
	faultCutAfter  = "cut after commit"
	faultCutWrite  = "cut after write"
	faultBlackhole = "blackhole"
	faultDelay     = "delay"
	faultTerminate = "terminate"
	faultTerm      = "sigterm"
	faultLock      = "lock"
	faultTamper    = "tamper"
	faultRestart   = "restart"
)

// families of faults: kills and stops prove most.
var families = map[string][]string{
	"kill":  {faultKill},
	"stop":  {faultStop, faultStop, faultStopBegin, faultStopHold, faultStopAfter, faultStopWrite, faultStopWrite, faultStopBeat},
	"other": {faultCut, faultCutBefore, faultCutAfter, faultCutWrite, faultBlackhole, faultDelay, faultTerminate, faultTerm, faultLock, faultLock, faultTamper},
}

// perMinute is how many kills and how many stops are aimed at, somewhat more than must land.
const perMinute = 26

// nemesis breaks things, by a seed.
type nemesis struct {
	fleet    *fleet
	pool     *pgxpool.Pool
	server   *postgres.Server // nil on somebody's own database, which is not restarted
	lease    time.Duration
	programs int
	clock    func() time.Time // the database's
	only     map[string]bool  // empty means all
	say      func(format string, args ...any)

	mu     sync.Mutex
	rng    *rand.Rand
	began  time.Time
	faults []Fault
	counts map[string]int
	broken []string // what was not refused, and must be
}

// run breaks things in several lanes until ctx ends: half of the fleet at most is broken at a time.
func (n *nemesis) run(ctx context.Context) {
	n.began = time.Now()
	var lanes sync.WaitGroup
	for range max(1, len(n.fleet.slots)/2) {
		lanes.Go(func() {
			for ctx.Err() == nil {
				n.once(ctx)
			}
		})
	}
	if n.server != nil && n.allowed(faultRestart) {
		lanes.Go(func() { n.restarts(ctx) })
	}
	lanes.Wait()
}

func (n *nemesis) allowed(what string) bool { return len(n.only) == 0 || n.only[what] }

func (n *nemesis) roll(limit int) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.rng.IntN(limit)
}

func (n *nemesis) between(low, high time.Duration) time.Duration {
	return low + time.Duration(n.roll(int(high-low)))
}

// choose draws the next fault: mostly from the family that is behind its number. It is empty when none is allowed.
func (n *nemesis) choose() string {
	kills, stops, _ := n.tally()
	n.mu.Lock()
	defer n.mu.Unlock()
	aim := int(time.Since(n.began).Minutes() * perMinute)
	order := []string{"kill", "stop", "other"}
	switch chance := n.rng.IntN(10); {
	case chance < 2 || kills > aim && stops > aim:
		order = []string{"other", "kill", "stop"}
	case stops < kills:
		order = []string{"stop", "kill", "other"}
	}
	for _, family := range order {
		var list []string
		for _, what := range families[family] {
			if n.allowed(what) {
				list = append(list, what)
			}
		}
		if len(list) > 0 {
			return list[n.rng.IntN(len(list))]
		}
	}
	return ""
}

// beyondLease is how long a worker is away that is to lose its leases.
func (n *nemesis) beyondLease() time.Duration { return n.lease + n.between(n.lease/20, n.lease/4) }

// take takes a worker that nothing is being done to.
func (n *nemesis) take() *slot {
	n.mu.Lock()
	defer n.mu.Unlock()
	var free []*slot
	for _, s := range n.fleet.slots {
		if !s.busy {
			free = append(free, s)
		}
	}
	if len(free) == 0 {
		return nil
	}
	s := free[n.rng.IntN(len(free))]
	s.busy = true
	return s
}

func (n *nemesis) giveBack(s *slot) {
	n.mu.Lock()
	defer n.mu.Unlock()
	s.busy = false
}

// note records a fault that has ended.
func (n *nemesis) note(f Fault) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.faults = append(n.faults, f)
	n.counts[f.What]++
}

func (n *nemesis) once(ctx context.Context) {
	what := n.choose()
	s := n.take()
	if s == nil || what == "" {
		sleep(ctx, 50*time.Millisecond)
		return
	}
	defer n.giveBack(s)
	f := &Fault{What: what, Worker: s.name(), From: n.clock()}
	if n.do(ctx, f, s) {
		f.Until = n.clock()
		n.note(*f)
	}
	if s.name() != f.Worker && !s.up(ctx, 10*time.Second) && ctx.Err() == nil { // a new process that is not up is a broken one still
		n.say("worker %s does not come up", s.name())
	}
	sleep(ctx, n.between(10*time.Millisecond, 80*time.Millisecond))
}

// do does one fault, and undoes what does not end by itself. It says in f what it was in the end, and reports whether
// it landed.
func (n *nemesis) do(ctx context.Context, f *Fault, s *slot) bool {
	switch f.What {
	case faultKill:
		return n.kill(s)
	case faultTerm:
		return n.term(s)
	case faultStop:
		n.freeze(ctx, s)
	case faultStopBegin, faultStopHold, faultStopAfter, faultStopWrite, faultStopBeat:
		n.freezeAt(ctx, f, s)
	case faultCut:
		return s.proxy.Cut() > 0
	case faultCutBefore, faultCutAfter, faultCutWrite:
		return n.cutAt(ctx, f, s)
	case faultBlackhole:
		s.proxy.Blackhole()
		sleep(ctx, n.beyondLease())
		s.proxy.Heal()
	case faultDelay:
		s.proxy.Delay(n.between(20*time.Millisecond, n.lease/10))
		sleep(ctx, n.between(n.lease/2, n.lease))
		s.proxy.Heal()
	case faultTerminate:
		return n.terminate(ctx, s)
	case faultLock:
		return n.lock(ctx, f)
	case faultTamper:
		return n.tamper(ctx)
	}
	return true
}

func sleep(ctx context.Context, d time.Duration) {
	select {
	case <-ctx.Done():
	case <-time.After(d):
	}
}

// heal undoes everything that is still broken.
func (n *nemesis) heal() {
	for _, s := range n.fleet.slots {
		s.proxy.Heal()
	}
}

// tally is how many kills, stops and cuts landed.
func (n *nemesis) tally() (kills, stops, cuts int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for what, count := range n.counts {
		switch what {
		case faultKill:
			kills += count
		case faultStop, faultStopBegin, faultStopHold, faultStopAfter, faultStopWrite, faultStopBeat:
			stops += count
		case faultCut, faultCutBefore, faultCutAfter, faultCutWrite, faultBlackhole, faultTerminate:
			cuts += count
		}
	}
	return kills, stops, cuts
}
