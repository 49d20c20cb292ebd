package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sort"
	"time"

	"github.com/riverqueue/river"
	"github.com/riverqueue/river/riverdriver/riverpgxv5"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

// Both work with the fleet's defaults.
const (
	idleCooldown = 5 * time.Millisecond
	idlePoll     = time.Second
)

// idle is a process that has nothing to do: enqueue gives it something, and begun is when it begins with it.
type idle struct {
	name    string
	enqueue func(context.Context) error
	begun   chan time.Time
	stop    func() error
}

// instant is a channel that says when a message came to it.
type instant struct{ begun chan<- time.Time }

func (*instant) Effect() channel.Effect { return channel.AtLeastOnce }

func (i *instant) Send(_ context.Context, m channel.Message) (channel.Sent, error) {
	i.begun <- time.Now()
	return channel.Sent{ExternalRef: m.RunID}, nil
}

func (b *bench) idleFleet(ctx context.Context) (*idle, error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := b.connect(ctx, url)
	if err != nil {
		return nil, err
	}
	client, err := jobs.NewClient(pool, nil)
	if err != nil {
		return nil, err
	}
	begun := make(chan time.Time, 1)
	fleet, err := workers.New(pool, &workers.Config{
		Channels: map[string]channel.Channel{"bench": &instant{begun}}, Logger: slog.New(slog.DiscardHandler),
		FetchCooldown: idleCooldown, FetchPollInterval: idlePoll,
	})
	if err != nil {
		return nil, err
	}
	runCtx, cancel := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- fleet.Run(runCtx) }()
	return &idle{
		name: "weir", begun: begun, enqueue: func(ctx context.Context) error { return notify(ctx, client, 1) },
		stop: func() error {
			cancel()
			defer drop()
			defer pool.Close()
			return <-ended
		},
	}, nil
}

type instantWorker struct {
	river.WorkerDefaults[noopArgs]
	begun chan<- time.Time
}

func (w *instantWorker) Work(context.Context, *river.Job[noopArgs]) error {
	w.begun <- time.Now()
	return nil
}

func (b *bench) idleRiver(ctx context.Context) (*idle, error) {
	url, drop, err := b.database(ctx)
	if err != nil {
		return nil, err
	}
	pool, err := b.connect(ctx, url)
	if err != nil {
		return nil, err
	}
	begun := make(chan time.Time, 1)
	workers := river.NewWorkers()
	river.AddWorker(workers, &instantWorker{begun: begun})
	client, err := river.NewClient(riverpgxv5.New(pool), &river.Config{
		Queues: map[string]river.QueueConfig{river.QueueDefault: {MaxWorkers: 100}}, Workers: workers,
		FetchCooldown: idleCooldown, FetchPollInterval: idlePoll,
	})
	if err != nil {
		return nil, err
	}
	if err := client.Start(context.WithoutCancel(ctx)); err != nil {
		return nil, err
	}
	return &idle{
		name: "river", begun: begun,
		enqueue: func(ctx context.Context) error {
			_, err := client.Insert(ctx, noopArgs{}, nil)
			return err
		},
		stop: func() error {
			defer drop()
			defer pool.Close()
			return client.Stop(context.WithoutCancel(ctx))
		},
	}, nil
}

// sample is the time from the end of an enqueue to the begin of its work.
func (i *idle) sample(ctx context.Context) (time.Duration, error) {
	if err := i.enqueue(ctx); err != nil {
		return 0, err
	}
	committed := time.Now()
	select {
	case at := <-i.begun:
		return at.Sub(committed), nil
	case <-ctx.Done():
		return 0, fmt.Errorf("%s did not begin: %w", i.name, ctx.Err())
	}
}

// latency compares the way from a commit to the begin of the work, one enqueue of each after the other, while there is
// nothing else to do.
func (b *bench) latency(ctx context.Context, r *report) (err error) {
	var both []*idle
	defer func() {
		for _, i := range both {
			err = errors.Join(err, i.stop())
		}
	}()
	for _, begin := range []func(context.Context) (*idle, error){b.idleFleet, b.idleRiver} {
		i, err := begin(ctx)
		if err != nil {
			return err
		}
		both = append(both, i)
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Minute)
	defer cancel()
	samples := b.scaled(400)
	if b.quick {
		samples = max(samples*3/10, 5)
	}
	if b.careless {
		samples = 3
	}
	if _, err := sampleAll(ctx, both, min(samples, 20)); err != nil { // sessions are new, and a leader is elected
		return err
	}
	lists := map[string][]float64{}
	for range b.roundsWanted() {
		times, err := sampleAll(ctx, both, samples)
		if err != nil {
			return err
		}
		for _, at := range []struct {
			name string
			p    float64
		}{{"p50", 0.50}, {"p99", 0.99}} {
			weir, own := percentile(times["weir"], at.p), percentile(times["river"], at.p)
			for key, v := range map[string]float64{"latency_" + at.name + "_ms": weir, "latency_" + at.name + "_ms_river": own, "over " + at.name: weir - own} {
				lists[key] = append(lists[key], v)
			}
		}
	}
	r.figures["latency_p50_ms_over_river"], r.figures["latency_p99_ms_over_river"] = spreadOf(lists["over p50"]...), spreadOf(lists["over p99"]...)
	for key, list := range lists {
		if key != "over p50" && key != "over p99" {
			r.details[key] = spreadOf(list...)
		}
	}
	return b.latencySoon(ctx, r, both)
}

// idleFor is how long both are left alone before a sample. Twice that lies between two samples of one, which is more than
// the 100 ms for which a River client by its defaults does not announce another job.
const idleFor = 60 * time.Millisecond

// sampleAll takes so many samples of each, one after the other, in milliseconds.
func sampleAll(ctx context.Context, both []*idle, n int) (map[string][]float64, error) {
	times := map[string][]float64{}
	for range n {
		for _, i := range both {
			pause(ctx, idleFor)
			took, err := i.sample(ctx)
			if err != nil {
				return nil, err
			}
			times[i.name] = append(times[i.name], took.Seconds()*1e3)
		}
	}
	return times, nil
}

// latencySoon is for what is enqueued 20 ms after something else, when that has begun.
func (b *bench) latencySoon(ctx context.Context, r *report, both []*idle) error {
	times := map[string][]float64{}
	n := 10
	if b.careless {
		n = 2
	}
	for range n {
		for _, i := range both {
			pause(ctx, 2*idleFor)
			if _, err := i.sample(ctx); err != nil {
				return err
			}
			pause(ctx, 15*time.Millisecond)
			took, err := i.sample(ctx)
			if err != nil {
				return err
			}
			times[i.name] = append(times[i.name], took.Seconds()*1e3)
		}
	}
	r.details["latency_soon_after_another_ms"], r.details["latency_soon_after_another_ms_river"] = spreadOf(times["weir"]...), spreadOf(times["river"]...)
	return nil
}

// pause waits a little longer than d, so that it hits no rhythm of anybody's.
func pause(ctx context.Context, d time.Duration) {
	select {
	case <-time.After(d + rand.N(10*time.Millisecond)):
	case <-ctx.Done():
	}
}

func percentile(list []float64, p float64) float64 {
	sort.Float64s(list)
	return list[min(int(p*float64(len(list))), len(list)-1)]
}
