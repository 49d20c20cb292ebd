package jobs

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
)

// Limits of NotifyMany.
const (
	// MaxNotifyMany is how many deliveries one NotifyMany makes, of all notifications together.
	MaxNotifyMany = 10_000
	// MaxNotifyBytes is how large the payloads of all deliveries of one call may be together, of Notify too: each
	// recipient has a copy.
	MaxNotifyBytes = 256 << 20
)

// NotifyParams is one notification of NotifyMany.
type NotifyParams struct {
	Notification Notification
	Opts         *Opts
}

// NotifyMany is NotifyManyTx in a transaction of its own. When the answer to its COMMIT is lost, it returns an error
// although the notifications may exist: give idempotency keys and call it again.
func (c *Client) NotifyMany(ctx context.Context, params []NotifyParams) ([]NotifyResult, error) {
	var res []NotifyResult
	err := c.inTx(ctx, func(tx pgx.Tx) (err error) {
		res, err = c.NotifyManyTx(ctx, tx, params)
		return err
	})
	if err != nil {
		return nil, err
	}
	return res, nil
}

// NotifyManyTx writes many notifications with a bounded number of statements, and answers for each in the order of
// params. Each delivery is a run like any other, with its own status, receipts, retries and cancellation; but deliveries of
// the same queue, priority, channel and due time share one River job, a hundred each, for their first try. That is several
// times faster than a job each. The job goes to the queue's name with "_bulk" appended, which a Fleet works, and which an
// application with a River client of its own must have among its Queues (see workers.Service.Queues). River shows tags on
// runs' own jobs only, not on a shared one.
//
// Input that is invalid is an error for all, before anything is written: one or more *InvalidError. A key that was used
// for something else is an answer for its own notification. All keys are taken in one order, so that two of these cannot
// deadlock with each other. At most MaxNotifyMany deliveries.
func (c *Client) NotifyManyTx(ctx context.Context, tx pgx.Tx, params []NotifyParams) ([]NotifyResult, error) {
	b, err := c.newNotifyBatch(params)
	if err != nil {
		return nil, err
	}
	if err := c.notify(ctx, tx, b, ringChunks); err != nil {
		return nil, err
	}
	return b.results, nil
}

// maxBulkQueue leaves room for what doorbell.ChunkQueue appends.
var maxBulkQueue = 64 - len(doorbell.ChunkQueue(""))

func (c *Client) newNotifyBatch(params []NotifyParams) (*notifyBatch, error) {
	deliveries := 0
	for _, p := range params {
		deliveries += len(p.Notification.To)
	}
	if len(params) == 0 || len(params) > MaxNotifyMany || deliveries > MaxNotifyMany {
		return nil, invalid("params", fmt.Sprintf("%d notifications with %d recipients", len(params), deliveries),
			fmt.Sprintf("from 1 to %d recipients in all", MaxNotifyMany))
	}
	b := &notifyBatch{results: make([]NotifyResult, len(params))}
	var faults []error
	for i, p := range params {
		o := p.Opts.withDefaults(c.cfg.DeliveryQueue, delivery.MaxFailures)
		err := errors.Join(p.Notification.validate(c.cfg.Channels), o.validate())
		if len(o.Queue) > maxBulkQueue {
			err = errors.Join(err, invalid("Opts.Queue", o.Queue, fmt.Sprintf("at most %d bytes", maxBulkQueue)))
		}
		if err == nil {
			err = b.add(i, p.Notification, o)
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("params[%d]: %w", i, err))
		}
	}
	return b, errors.Join(faults...)
}

// notifyItem is a notification that is to be written.
type notifyItem struct {
	index  int
	id     uuid.UUID
	n      Notification
	opts   *Opts
	digest []byte
}

type notifyBatch struct {
	results []NotifyResult
	items   []*notifyItem
	// byKey is the item that has a key, repeats the others of the same call that have it too.
	byKey   map[string]*notifyItem
	repeats map[int]*notifyItem
}

func (b *notifyBatch) add(index int, n Notification, o *Opts) error {
	id, err := newID()
	if err != nil {
		return err
	}
	it := &notifyItem{index: index, id: id, n: n, opts: o}
	if o.IdempotencyKey != "" {
		asked, err := delivery.Canonical(n)
		if err != nil {
			return err
		}
		it.digest = delivery.Digest(asked)
		if first := b.byKey[o.IdempotencyKey]; first != nil {
			if string(first.digest) != string(it.digest) {
				b.results[index].Err = &KeyReusedError{Kind: keyOfNotifications, Key: o.IdempotencyKey}
			}
			if b.repeats == nil {
				b.repeats = map[int]*notifyItem{}
			}
			b.repeats[index] = first
			return nil
		}
		if b.byKey == nil {
			b.byKey = map[string]*notifyItem{}
		}
		b.byKey[o.IdempotencyKey] = it
	}
	b.items = append(b.items, it)
	return nil
}

// notify takes the keys, answers what they stand for already, and writes the rest.
func (c *Client) notify(ctx context.Context, tx pgx.Tx, b *notifyBatch, ring ringing) error {
	if err := b.takeKeys(ctx, tx); err != nil {
		return err
	}
	if len(b.items) > 0 {
		if err := c.insertNotifications(ctx, tx, b, ring); err != nil {
			return err
		}
	}
	for index, first := range b.repeats {
		answer := b.results[first.index]
		var reused *KeyReusedError
		if errors.As(b.results[index].Err, &reused) {
			reused.Run = RunID(answer.ID)
			continue
		}
		b.results[index] = answer
		b.results[index].Existing = answer.Err == nil
	}
	return nil
}

func (b *notifyBatch) takeKeys(ctx context.Context, tx pgx.Tx) error {
	var (
		reqs  []keyRequest
		keyed []*notifyItem
		free  []*notifyItem
	)
	for _, it := range b.items {
		if it.opts.IdempotencyKey == "" {
			free = append(free, it)
			continue
		}
		reqs = append(reqs, keyRequest{kind: keyOfNotifications, key: it.opts.IdempotencyKey, run: it.id, digest: it.digest})
		keyed = append(keyed, it)
	}
	if len(reqs) == 0 {
		return nil
	}
	found, err := takeKeys(ctx, tx, reqs)
	if err != nil {
		return err
	}
	answers, err := existingNotifications(ctx, tx, found)
	if err != nil {
		return err
	}
	for i, it := range keyed {
		f := found[i]
		switch {
		case f == nil:
			free = append(free, it)
		case f.reused:
			b.results[it.index].Err = &KeyReusedError{Kind: keyOfNotifications, Key: it.opts.IdempotencyKey, Run: RunID(f.run)}
		default:
			b.results[it.index] = answers[f.run]
		}
	}
	b.items = free
	return nil
}

var insertNotifications = fencing.Compile("insert notifications", `
with n as (
    insert into weir.notification (id, run_ids)
    select x.root::uuid, string_to_array(x.runs, ',')::uuid[] from unnest(@roots::text[], @root_runs::text[]) x(root, runs)
), runs as (
    insert into weir.run (id, root_id, kind, status, queue, priority, max_failures, next_attempt_at, doorbell_id, needs, tags, metadata)
    select x.run::uuid, x.root::uuid, 'delivery', 'pending', x.queue, x.priority, x.budget, coalesce(x.due, clock_timestamp()),
        x.job, string_to_array(x.needs, ','), x.tags::text[], x.metadata::jsonb
    from unnest(@runs::text[], @parents::text[], @queues::text[], @priorities::smallint[], @budgets::integer[], @due::timestamptz[],
        @jobs::bigint[], @needs::text[], @tags::text[], @metadata::text[])
        x(run, root, queue, priority, budget, due, job, needs, tags, metadata)
)
insert into weir.payload (run_id, body, digest)
select x.run::uuid, convert_to(x.body, 'UTF8'), sha256(convert_to(x.body, 'UTF8'))
from unnest(@runs::text[], @bodies::text[]) x(run, body)`)

// deliveryRow is one run that is to be written.
type deliveryRow struct {
	item    *notifyItem
	run     uuid.UUID
	channel string
	body    string
	needs   string
	job     int64
}

func (c *Client) insertNotifications(ctx context.Context, tx pgx.Tx, b *notifyBatch, ring ringing) error {
	var (
		rows  []*deliveryRow
		bytes int
	)
	for _, it := range b.items {
		own, err := it.rows()
		if err != nil {
			return err
		}
		res := &b.results[it.index]
		*res = NotifyResult{ID: NotificationID(it.id), Runs: make([]RunRef, len(own))}
		for i, r := range own {
			res.Runs[i] = RunRef{ID: RunID(r.run), Status: StatusPending}
			bytes += len(r.body)
		}
		rows = append(rows, own...)
		if bytes > MaxNotifyBytes {
			return invalid("Notification", fmt.Sprintf("more than %d bytes for all recipients", MaxNotifyBytes), "less: each recipient has a copy; use several calls")
		}
	}
	if err := ring(ctx, tx, c.bells, rows); err != nil {
		return fmt.Errorf("jobs: notify: %w", err)
	}
	if _, err := tx.Exec(ctx, insertNotifications.SQL, insertNotifications.Bind(rowArgs(b.items, rows))...); err != nil {
		return fmt.Errorf("jobs: notify: %w", err)
	}
	return nil
}

func (it *notifyItem) rows() ([]*deliveryRow, error) {
	rows := make([]*deliveryRow, len(it.n.To))
	messages := it.n.telegramParts()
	for i, to := range it.n.To {
		run, err := newID()
		if err != nil {
			return nil, err
		}
		payload := delivery.Payload{
			Notification: it.id.String(), Channel: to.Channel, Address: to.Address, Subject: it.n.Subject, Text: it.n.Text, HTML: it.n.HTML,
		}
		if to.Channel == delivery.Telegram && len(messages) > 1 {
			payload.Text, payload.HTML, payload.Parts = "", "", messages
		}
		body, err := delivery.Canonical(payload)
		if err != nil {
			return nil, err
		}
		// The name of a channel holds no comma.
		needs := strings.Join(delivery.Needs(to.Channel, len(payload.Parts)), ",")
		rows[i] = &deliveryRow{item: it, run: run, channel: to.Channel, body: string(body), needs: needs}
	}
	return rows, nil
}

func rowArgs(items []*notifyItem, rows []*deliveryRow) fencing.Args {
	n := len(rows)
	var (
		roots, rootRuns                = make([]string, len(items)), make([]string, len(items))
		runs, parents, queues, bodies  = make([]string, n), make([]string, n), make([]string, n), make([]string, n)
		needs, tags, metadata          = make([]string, n), make([]string, n), make([]string, n)
		priorities, budgets, due, jobs = make([]int16, n), make([]int32, n), make([]*time.Time, n), make([]int64, n)
	)
	ids := map[*notifyItem][]string{}
	for i, r := range rows {
		o := r.item.opts
		runs[i], parents[i], queues[i], bodies[i], needs[i], jobs[i] = r.run.String(), r.item.id.String(), o.Queue, r.body, r.needs, r.job
		// Tags are plain words, so the array's text form needs no quoting.
		tags[i], metadata[i] = "{"+strings.Join(o.Tags, ",")+"}", string(o.Metadata)
		priorities[i], budgets[i] = int16(o.Priority), int32(o.MaxAttempts) // #nosec G115 -- validated
		if !o.ScheduledAt.IsZero() {
			due[i] = &o.ScheduledAt
		}
		ids[r.item] = append(ids[r.item], runs[i])
	}
	for i, it := range items {
		roots[i], rootRuns[i] = it.id.String(), strings.Join(ids[it], ",")
	}
	return fencing.Args{
		"roots": roots, "root_runs": rootRuns, "runs": runs, "parents": parents, "queues": queues, "priorities": priorities,
		"budgets": budgets, "due": due, "jobs": jobs, "needs": needs, "tags": tags, "metadata": metadata, "bodies": bodies,
	}
}

// ringing inserts the River jobs of rows and notes them there.
type ringing func(ctx context.Context, tx pgx.Tx, bells *doorbell.Bells, rows []*deliveryRow) error

func ringEach(ctx context.Context, tx pgx.Tx, bells *doorbell.Bells, rows []*deliveryRow) error {
	rung := make([]fencing.Rung, len(rows))
	for i, r := range rows {
		o := r.item.opts
		rung[i] = fencing.Rung{Run: r.run, Kind: KindDelivery, Queue: o.Queue, Priority: o.Priority, At: o.ScheduledAt, Tags: o.Tags, Channel: r.channel}
	}
	jobs, err := bells.Ring(ctx, tx, rung)
	if err != nil {
		return err
	}
	for i, r := range rows {
		r.job = jobs[i]
	}
	return nil
}

// ringChunks lets what is alike share a job. What has nothing alike gets one of its own.
func ringChunks(ctx context.Context, tx pgx.Tx, bells *doorbell.Bells, rows []*deliveryRow) error {
	var (
		chunks [][]*deliveryRow
		open   = map[string]int{}
	)
	for _, r := range rows {
		o := r.item.opts
		alike := strings.Join([]string{o.Queue, strconv.Itoa(o.Priority), r.channel, o.ScheduledAt.UTC().String()}, "\x00")
		at, ok := open[alike]
		if !ok || len(chunks[at]) == doorbell.ChunkSize {
			at = len(chunks)
			open[alike] = at
			chunks = append(chunks, nil)
		}
		chunks[at] = append(chunks[at], r)
	}
	var (
		alone []*deliveryRow
		many  [][]*deliveryRow
		asked []doorbell.Chunk
	)
	for _, chunk := range chunks {
		if len(chunk) == 1 {
			alone = append(alone, chunk[0])
			continue
		}
		o := chunk[0].item.opts
		c := doorbell.Chunk{Queue: o.Queue, Priority: o.Priority, At: o.ScheduledAt, Channel: chunk[0].channel}
		for _, r := range chunk {
			c.Runs = append(c.Runs, r.run)
		}
		many, asked = append(many, chunk), append(asked, c)
	}
	if len(alone) > 0 {
		if err := ringEach(ctx, tx, bells, alone); err != nil {
			return err
		}
	}
	if len(many) == 0 {
		return nil
	}
	jobs, err := bells.RingChunks(ctx, tx, asked)
	if err != nil {
		return err
	}
	for i, chunk := range many {
		for _, r := range chunk {
			r.job = jobs[i]
		}
	}
	return nil
}
