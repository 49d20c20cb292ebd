package jobs

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/fencing"
)

// MaxEnqueue is how many runs one EnqueueMany takes.
const MaxEnqueue = 10_000

// EnqueueResult is what an enqueue made or found.
type EnqueueResult struct {
	Run RunRef `json:"run"`
	// Existing says that the idempotency key had made this run before; nothing was written.
	Existing bool `json:"existing"`
	// Err is set in the results of EnqueueMany for a request that was refused while the others went on: a *KeyReusedError
	// or an *ExclusiveError.
	Err error `json:"-"`
}

// ErrExclusive: another run of the kind with the same exclusive key is live. The error is an *ExclusiveError.
var ErrExclusive = errors.New("jobs: another run holds the exclusive key")

// ExclusiveError names the run that holds an exclusive key.
type ExclusiveError struct {
	Kind, Key string
	Run       RunID
}

func (e *ExclusiveError) Error() string {
	return fmt.Sprintf("jobs: exclusive key %q of kind %s is held by run %s", e.Key, e.Kind, e.Run)
}

// Is makes it match ErrExclusive.
func (e *ExclusiveError) Is(target error) bool { return target == ErrExclusive }

// EnqueueParams is one request of EnqueueMany.
type EnqueueParams struct {
	Request Request
	Opts    *Opts
}

// Enqueue is EnqueueTx in a transaction of its own. When the answer to its COMMIT is lost, it returns an error although
// the run may exist: give an idempotency key and call it again.
func (c *Client) Enqueue(ctx context.Context, r Request, opts *Opts) (*EnqueueResult, error) {
	var res *EnqueueResult
	err := c.inTx(ctx, func(tx pgx.Tx) (err error) {
		res, err = c.EnqueueTx(ctx, tx, r, opts)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// EnqueueTx writes a run with its doorbell in the caller's transaction: OrderKind.Of(payload) makes the request.
// Whatever is wrong is found before anything is written, and is one or more *InvalidError. An idempotency key that was
// used for another payload is a *KeyReusedError; an exclusive key that a live run holds is an *ExclusiveError, and
// then nothing was written.
func (c *Client) EnqueueTx(ctx context.Context, tx pgx.Tx, r Request, opts *Opts) (*EnqueueResult, error) {
	res, err := c.EnqueueManyTx(ctx, tx, []EnqueueParams{{Request: r, Opts: opts}})
	if err != nil {
		return nil, err
	}
	if res[0].Err != nil {
		return nil, res[0].Err
	}
	return &res[0], nil
}

// EnqueueMany is EnqueueManyTx in a transaction of its own.
func (c *Client) EnqueueMany(ctx context.Context, params []EnqueueParams) ([]EnqueueResult, error) {
	var res []EnqueueResult
	err := c.inTx(ctx, func(tx pgx.Tx) (err error) {
		res, err = c.EnqueueManyTx(ctx, tx, params)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// EnqueueManyTx writes many runs with a bounded number of statements, and answers for each in the order of params. All
// keys are taken in one order, so that two of these cannot deadlock with each other. Input that is invalid is an error
// for all, before anything is written; a key that is taken is an answer for its own request.
func (c *Client) EnqueueManyTx(ctx context.Context, tx pgx.Tx, params []EnqueueParams) ([]EnqueueResult, error) {
	batch, err := newEnqueueBatch(params)
	if err != nil {
		return nil, err
	}
	if err := batch.takeKeys(ctx, tx); err != nil {
		return nil, err
	}
	if err := c.insertRuns(ctx, tx, batch); err != nil {
		return nil, fmt.Errorf("jobs: enqueue: %w", err)
	}
	return batch.results, nil
}

type enqueueItem struct {
	index int
	id    uuid.UUID
	req   Request
	opts  *Opts
}

type enqueueBatch struct {
	results []EnqueueResult
	items   []*enqueueItem // those that are to be inserted
	aliases map[int]int    // a request that repeats the key of an earlier one
}

func newEnqueueBatch(params []EnqueueParams) (*enqueueBatch, error) {
	if len(params) == 0 || len(params) > MaxEnqueue {
		return nil, invalid("params", fmt.Sprintf("%d requests", len(params)), fmt.Sprintf("from 1 to %d requests", MaxEnqueue))
	}
	b := &enqueueBatch{results: make([]EnqueueResult, len(params)), aliases: map[int]int{}}
	var faults []error
	first := map[[2]string]int{}
	for i, p := range params {
		if p.Request.err != nil || p.Request.kind == "" {
			if p.Request.err == nil {
				p.Request.err = invalid(fmt.Sprintf("params[%d].Request", i), "", "made by Kind.Of")
			}
			faults = append(faults, p.Request.err)
			continue
		}
		o := p.Opts.withDefaults(p.Request.queue, p.Request.maxAttempts)
		if err := o.validate(); err != nil {
			faults = append(faults, err)
			continue
		}
		id, err := newID()
		if err != nil {
			return nil, err
		}
		item := &enqueueItem{index: i, id: id, req: p.Request, opts: o}
		if o.IdempotencyKey != "" {
			key := [2]string{item.req.kind, o.IdempotencyKey}
			if earlier, ok := first[key]; ok {
				b.aliases[i] = earlier
				if a, err := sameAsked(params[earlier].Request, p.Request); err != nil || !a {
					b.results[i].Err = &KeyReusedError{Kind: key[0], Key: key[1]}
				}
				continue
			}
			first[key] = i
		}
		b.items = append(b.items, item)
	}
	return b, errors.Join(faults...)
}

func sameAsked(a, b Request) (bool, error) {
	x, err := a.keyDigest()
	if err != nil {
		return false, err
	}
	y, err := b.keyDigest()
	return string(x) == string(y), err
}

// takeKeys takes the idempotency keys, and answers the requests whose key stands for a run already.
func (b *enqueueBatch) takeKeys(ctx context.Context, tx pgx.Tx) error {
	var (
		reqs  []keyRequest
		items []*enqueueItem
	)
	for _, it := range b.items {
		if it.opts.IdempotencyKey == "" {
			continue
		}
		digest, err := it.req.keyDigest()
		if err != nil {
			return err
		}
		reqs = append(reqs, keyRequest{kind: it.req.kind, key: it.opts.IdempotencyKey, run: it.id, digest: digest})
		items = append(items, it)
	}
	if len(reqs) == 0 {
		return nil
	}
	taken, err := takeKeys(ctx, tx, reqs)
	if err != nil {
		return err
	}
	refs, err := existingRuns(ctx, tx, taken)
	if err != nil {
		return err
	}
	answers := map[*enqueueItem]EnqueueResult{}
	for i, f := range taken {
		it := items[i]
		if f.reused {
			answers[it] = EnqueueResult{Err: &KeyReusedError{Kind: it.req.kind, Key: it.opts.IdempotencyKey, Run: RunID(f.run)}}
		} else {
			answers[it] = EnqueueResult{Run: refs[f.run], Existing: true}
		}
	}
	b.answer(answers)
	return nil
}

// answer settles items that are not inserted.
func (b *enqueueBatch) answer(answers map[*enqueueItem]EnqueueResult) {
	b.items = slices.DeleteFunc(b.items, func(it *enqueueItem) bool {
		res, ok := answers[it]
		if ok {
			b.results[it.index] = res
		}
		return ok
	})
}

// finish gives the aliases of keys their answers.
func (b *enqueueBatch) finish() {
	for i, earlier := range b.aliases {
		if b.results[i].Err != nil {
			var reused *KeyReusedError
			if errors.As(b.results[i].Err, &reused) {
				reused.Run = b.results[earlier].Run.ID
			}
			continue
		}
		b.results[i] = b.results[earlier]
		b.results[i].Existing = b.results[i].Err == nil
	}
}

var refsOfRuns = fencing.Compile("refs of runs", `
select k.run_id, k.outcome::text, r.status, coalesce(r.error_code, ''), r.finished_at
from weir.key k left join weir.run r on r.id = k.run_id where k.run_id = any(@runs::text[]::uuid[])`)

// existingRuns answers repeats from the runs, or from the keys where those were cleaned: one statement, one snapshot.
func existingRuns(ctx context.Context, tx pgx.Tx, found map[int]*foundKey) (map[uuid.UUID]RunRef, error) {
	refs := map[uuid.UUID]RunRef{}
	var ids []string
	for _, f := range found {
		if f.reused {
			continue
		}
		refs[f.run] = RunRef{ID: RunID(f.run)}
		if len(f.outcome) > 0 {
			refs[f.run] = f.outcome[0]
		}
		ids = append(ids, f.run.String())
	}
	if len(ids) == 0 {
		return refs, nil
	}
	rows, err := tx.Query(ctx, refsOfRuns.SQL, refsOfRuns.Bind(fencing.Args{"runs": ids})...)
	if err != nil {
		return nil, fmt.Errorf("jobs: enqueue: %w", err)
	}
	var (
		id                    uuid.UUID
		outcome, status, code *string
		finished              *time.Time
	)
	if _, err := pgx.ForEachRow(rows, []any{&id, &outcome, &status, &code, &finished}, func() error {
		if status != nil {
			refs[id] = RunRef{ID: RunID(id), Status: Status(*status), ErrorCode: *code, FinishedAt: finished}
			return nil
		}
		list, err := decodeOutcome(outcome)
		if len(list) > 0 {
			refs[id] = list[0]
		}
		return err
	}); err != nil {
		return nil, fmt.Errorf("jobs: enqueue: %w", err)
	}
	return refs, nil
}

var insertRuns = fencing.Compile("insert runs", `
with a as (
    select * from unnest(@runs::text[], @kinds::text[], @queues::text[], @priorities::smallint[], @budgets::integer[],
        @due::timestamptz[], @jobs::bigint[], @needs::text[], @exclusive::text[], @tags::text[], @metadata::text[], @bodies::text[])
        a(run, kind, queue, priority, budget, due, job, need, exclusive, tags, metadata, body)
), made as (
    insert into weir.run (id, root_id, kind, status, queue, priority, max_failures, next_attempt_at, doorbell_id, needs,
        exclusive_key, tags, metadata)
    select a.run::uuid, a.run::uuid, a.kind, 'queued', a.queue, a.priority, a.budget, coalesce(a.due, clock_timestamp()),
        a.job, array[a.need], a.exclusive, a.tags::text[], a.metadata::jsonb
    from a order by a.kind, a.exclusive, a.run
    on conflict (kind, exclusive_key)
        where exclusive_key is not null and status in ('pending', 'queued', 'approved', 'running', 'executing', 'processing')
        do nothing
    returning id
), payloads as (
    insert into weir.payload (run_id, body, digest)
    select made.id, convert_to(a.body, 'UTF8'), sha256(convert_to(a.body, 'UTF8'))
    from made join a on a.run::uuid = made.id
)
select id from made`)

func (c *Client) insertRuns(ctx context.Context, tx pgx.Tx, b *enqueueBatch) error {
	defer b.finish()
	for round := 0; len(b.items) > 0; round++ {
		rung := make([]fencing.Rung, len(b.items))
		for i, it := range b.items {
			rung[i] = fencing.Rung{
				Run: it.id, Kind: it.req.kind, Queue: it.opts.Queue, Priority: it.opts.Priority, At: it.opts.ScheduledAt, Tags: it.opts.Tags,
			}
		}
		jobs, err := c.bells.Ring(ctx, tx, rung)
		if err != nil {
			return err
		}
		made, err := queryIDs(ctx, tx, insertRuns, runArgs(b.items, jobs))
		if err != nil {
			return err
		}
		var (
			lost     []*enqueueItem
			lostJobs []int64
		)
		for i, it := range b.items {
			if made[it.id] {
				b.results[it.index] = EnqueueResult{Run: RunRef{ID: RunID(it.id), Status: "queued"}}
				continue
			}
			lost, lostJobs = append(lost, it), append(lostJobs, jobs[i])
		}
		b.items = lost
		if len(lost) == 0 {
			return nil
		}
		if err := c.bells.Remove(ctx, tx, lostJobs); err != nil {
			return err
		}
		if err := b.answerExclusive(ctx, tx, round == keyRounds); err != nil {
			return err
		}
	}
	return nil
}

func runArgs(items []*enqueueItem, jobs []int64) fencing.Args {
	n := len(items)
	var (
		runs, kinds, queues, needs = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		tags, metadata, bodies     = make([]string, n), make([]string, n), make([]string, n)
		priorities                 = make([]int16, n)
		budgets                    = make([]int32, n)
		due                        = make([]*time.Time, n)
		exclusive                  = make([]*string, n)
	)
	for i, it := range items {
		runs[i], kinds[i], queues[i], needs[i] = it.id.String(), it.req.kind, it.opts.Queue, it.req.need
		// Tags are plain words, so the array's text form needs no quoting.
		tags[i], metadata[i], bodies[i] = "{"+strings.Join(it.opts.Tags, ",")+"}", string(it.opts.Metadata), string(it.req.body)
		priorities[i], budgets[i] = int16(it.opts.Priority), int32(it.opts.MaxAttempts) // #nosec G115 -- validated
		if !it.opts.ScheduledAt.IsZero() {
			due[i] = &it.opts.ScheduledAt
		}
		if it.opts.ExclusiveKey != "" {
			exclusive[i] = &it.opts.ExclusiveKey
		}
	}
	return fencing.Args{
		"runs": runs, "kinds": kinds, "queues": queues, "priorities": priorities, "budgets": budgets, "due": due, "jobs": jobs,
		"needs": needs, "exclusive": exclusive, "tags": tags, "metadata": metadata, "bodies": bodies,
	}
}

var exclusiveHolders = fencing.Compile("holders of exclusive keys", `
select r.kind, r.exclusive_key, r.id from unnest(@kinds::text[], @keys::text[]) a(kind, key)
join weir.run r on r.kind = a.kind and r.exclusive_key = a.key
    and r.status in ('pending', 'queued', 'approved', 'running', 'executing', 'processing')`)

// answerExclusive names the runs that hold the exclusive keys of what was not inserted, and gives the idempotency keys
// back. A holder that ended in between leaves its request for another round.
func (b *enqueueBatch) answerExclusive(ctx context.Context, tx pgx.Tx, last bool) error {
	kinds, keys := make([]string, len(b.items)), make([]string, len(b.items))
	for i, it := range b.items {
		kinds[i], keys[i] = it.req.kind, it.opts.ExclusiveKey
	}
	rows, err := tx.Query(ctx, exclusiveHolders.SQL, exclusiveHolders.Bind(fencing.Args{"kinds": kinds, "keys": keys})...)
	if err != nil {
		return err
	}
	holders := map[[2]string]uuid.UUID{}
	var (
		kind, key string
		holder    uuid.UUID
	)
	if _, err := pgx.ForEachRow(rows, []any{&kind, &key, &holder}, func() error {
		holders[[2]string{kind, key}] = holder
		return nil
	}); err != nil {
		return err
	}
	var back []keyRequest
	answers := map[*enqueueItem]EnqueueResult{}
	for _, it := range b.items {
		holder, found := holders[[2]string{it.req.kind, it.opts.ExclusiveKey}]
		if !found && !last {
			continue
		}
		if it.opts.IdempotencyKey != "" {
			back = append(back, keyRequest{kind: it.req.kind, key: it.opts.IdempotencyKey, run: it.id})
		}
		answers[it] = EnqueueResult{Err: &ExclusiveError{Kind: it.req.kind, Key: it.opts.ExclusiveKey, Run: RunID(holder)}}
	}
	b.answer(answers)
	return giveBack(ctx, tx, back)
}
