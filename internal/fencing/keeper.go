package fencing

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	// BeatsPerLease is how often a lease is renewed while it lasts.
	BeatsPerLease = 4
	// beatSlice bounds one statement: 5,000 renewals take about 60 ms, and row locks that long delay nobody.
	beatSlice = 5000
)

// A renewal skips a row that is locked: it must never wait behind a slow commit, and the classification tells the two
// apart. It renews a run only until the deadline that its step declared.
var beat = Compile("beat", `
with mine as (
    select r.id, a.lease
    from unnest(@runs::uuid[], @attempts::bigint[], @leases::interval[]) a(id, attempt, lease)
    join weir.run r on r.id = a.id and r.attempt = a.attempt
    where r.status in (`+literals(ownable())+`) and r.step_deadline_at > clock_timestamp()
    order by r.id for no key update of r skip locked
)
update weir.run r set lease_expires_at = clock_timestamp() + mine.lease
from mine where r.id = mine.id returning r.id, r.attempt`)

var classify = Compile("classify", `
select id, attempt, status in (`+literals(ownable())+`), coalesce(step_deadline_at <= clock_timestamp(), true)
from weir.run where id = any(@runs::uuid[])`)

func ownable() []Status { return []Status{"processing", "running", "executing"} }

// BeatReport says what one beat did. Err is set when PostgreSQL did not answer.
type BeatReport struct {
	Renewed, Locked, Lost, Overdue int
	Took                           time.Duration
	Err                            error
}

// Keeper renews the leases of a process (R6): all of them in one statement for each slice of 5,000, on a connection of
// its own, so that handlers that use up the pool do not cost them.
//
// A Keeper is for one Run at a time; Hold and the methods of Held may be called by any goroutine.
type Keeper struct {
	connect func(context.Context) (*pgx.Conn, error)
	every   time.Duration
	report  func(BeatReport)

	mu   sync.Mutex
	held map[*Held]struct{}
	over error     // why nothing is to be held any more
	conn *pgx.Conn // of the goroutine in Run only
}

// NewKeeper makes a keeper that beats every so often. connect opens its connection, again after each failure.
func NewKeeper(connect func(context.Context) (*pgx.Conn, error), every time.Duration, report func(BeatReport)) *Keeper {
	return &Keeper{connect: connect, every: every, report: report, held: map[*Held]struct{}{}}
}

// Hold starts to keep a run that was just claimed. since is the moment before the claim was sent. The context ends with
// ErrLeaseLost, with ErrStepDeadline, with EndAll's cause, or with its parent. The caller must call Drop.
func (k *Keeper) Hold(ctx context.Context, run uuid.UUID, attempt int64, lease, stepTime time.Duration, since time.Time) (context.Context, *Held) {
	ctx, cancel := context.WithCancelCause(ctx)
	h := &Held{Run: run, keeper: k, lease: lease, stepTime: stepTime, cancel: cancel, attempt: attempt}
	h.start(since)
	k.mu.Lock()
	k.held[h] = struct{}{}
	over := k.over
	k.mu.Unlock()
	if over != nil {
		cancel(over)
	}
	return ctx, h
}

// EndAll ends the context of every run that is held, and of every one that will be, with a cause of the holder's own, such as a
// shutdown. The leases are kept until they are dropped.
func (k *Keeper) EndAll(cause error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	k.over = cause
	for h := range k.held {
		h.cancel(cause)
	}
}

// Runs are the runs that this process holds.
func (k *Keeper) Runs() []uuid.UUID {
	k.mu.Lock()
	defer k.mu.Unlock()
	out := make([]uuid.UUID, 0, len(k.held))
	for h := range k.held {
		out = append(out, h.Run)
	}
	return out
}

// Len is how many runs this process holds.
func (k *Keeper) Len() int {
	k.mu.Lock()
	defer k.mu.Unlock()
	return len(k.held)
}

func (k *Keeper) forget(h *Held) {
	k.mu.Lock()
	delete(k.held, h)
	k.mu.Unlock()
}

// Run beats until ctx ends. It never returns an error: a database that does not answer is reported, and tried again
// at the next beat; meanwhile each run's own stopwatch runs.
func (k *Keeper) Run(ctx context.Context) {
	defer k.disconnect()
	ticker := time.NewTicker(k.every)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			k.Beat(ctx)
		}
	}
}

// Beat renews what is due now. It is for Run, and for tests that do not want to wait.
func (k *Keeper) Beat(ctx context.Context) {
	due := k.due(time.Now())
	for slice := range slices.Chunk(due, beatSlice) {
		began := time.Now()
		report, err := k.beatSlice(ctx, slice)
		report.Took, report.Err = time.Since(began), err
		if ctx.Err() == nil && k.report != nil {
			k.report(report)
		}
		if err != nil {
			k.disconnect()
			return
		}
	}
}

type dueRun struct {
	held    *Held
	attempt int64
}

func (k *Keeper) due(now time.Time) []dueRun {
	k.mu.Lock()
	defer k.mu.Unlock()
	var due []dueRun
	for h := range k.held {
		// Half a beat early rather than half a beat late.
		if attempt, ok := h.dueBeat(now, k.every/2); ok {
			due = append(due, dueRun{h, attempt})
		}
	}
	slices.SortFunc(due, func(a, b dueRun) int { return bytes.Compare(a.held.Run[:], b.held.Run[:]) })
	return due
}

func (k *Keeper) beatSlice(ctx context.Context, slice []dueRun) (BeatReport, error) {
	var report BeatReport
	// Never two beats at a time, and never one that outlives the leases that it renews (LF-07).
	ctx, cancel := context.WithTimeout(ctx, k.every)
	defer cancel()
	if k.conn == nil || k.conn.IsClosed() {
		conn, err := k.connect(ctx)
		if err != nil {
			return report, fmt.Errorf("heartbeat: connect: %w", err)
		}
		k.conn = conn
	}

	runs := make([]uuid.UUID, len(slice))
	attempts := make([]int64, len(slice))
	leases := make([]time.Duration, len(slice))
	for i, d := range slice {
		runs[i], attempts[i], leases[i] = d.held.Run, d.attempt, d.held.lease
	}
	sent := time.Now()
	rows, err := k.conn.Query(ctx, beat.SQL, beat.Bind(Args{"runs": runs, "attempts": attempts, "leases": leases})...)
	if err != nil {
		return report, fmt.Errorf("heartbeat: %w", err)
	}
	type token struct {
		run     uuid.UUID
		attempt int64
	}
	renewed := make(map[token]bool, len(slice))
	var t token
	if _, err := pgx.ForEachRow(rows, []any{&t.run, &t.attempt}, func() error {
		renewed[t] = true
		return nil
	}); err != nil {
		return report, fmt.Errorf("heartbeat: %w", err)
	}
	var rest []dueRun
	for _, d := range slice {
		if renewed[token{d.held.Run, d.attempt}] {
			d.held.proved(d.attempt, sent)
		} else {
			rest = append(rest, d)
		}
	}
	report.Renewed = len(slice) - len(rest)
	if len(rest) > 0 {
		err = k.classify(ctx, rest, &report)
	}
	return report, err
}

// classify finds out why runs were not renewed (F8): locked by a slow commit of ours, taken away, or over their time.
func (k *Keeper) classify(ctx context.Context, rest []dueRun, report *BeatReport) error {
	runs := make([]uuid.UUID, len(rest))
	for i, d := range rest {
		runs[i] = d.held.Run
	}
	sent := time.Now()
	rows, err := k.conn.Query(ctx, classify.SQL, classify.Bind(Args{"runs": runs})...)
	if err != nil {
		return fmt.Errorf("heartbeat: classify: %w", err)
	}
	type state struct {
		attempt          int64
		ownable, overdue bool
	}
	states := map[uuid.UUID]state{}
	var (
		id uuid.UUID
		s  state
	)
	if _, err := pgx.ForEachRow(rows, []any{&id, &s.attempt, &s.ownable, &s.overdue}, func() error {
		states[id] = s
		return nil
	}); err != nil {
		return fmt.Errorf("heartbeat: classify: %w", err)
	}
	for _, d := range rest {
		s, found := states[d.held.Run]
		switch d.held.judge(s.attempt, found && s.ownable, s.overdue, sent) {
		case lost:
			report.Lost++
			d.held.end(ErrLeaseLost)
		case overdue:
			report.Overdue++
			d.held.end(ErrStepDeadline)
		case locked:
			report.Locked++
		case undecided:
		}
	}
	return nil
}

func (k *Keeper) disconnect() {
	if k.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = k.conn.Close(ctx) // gone either way
	k.conn = nil
}
