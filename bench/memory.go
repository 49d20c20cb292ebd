package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"os/exec"
	"runtime/pprof"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers"
	"github.com/weirqueue/weir/workers/channel"
)

const (
	waitingDeliveries = 1_000_000
	// memoryTime is for how long the worker works before its memory is read.
	memoryTime = 30 * time.Second
	// workerEnv makes this program a worker of the database that it names, until its standard input ends.
	workerEnv, heapEnv = "WEIR_BENCH_WORKER", "WEIR_BENCH_HEAP"
)

// memory reads the peak of a worker process that has a million deliveries before it: half with doorbells of their own, half
// in chunks.
func (b *bench) memory(ctx context.Context, r *report) error {
	url, drop, err := b.database(ctx)
	if err != nil {
		return err
	}
	defer drop()
	pool, err := b.connect(ctx, url)
	if err != nil {
		return err
	}
	defer pool.Close()
	client, err := jobs.NewClient(pool, nil)
	if err != nil {
		return err
	}
	n, long := b.scaled(waitingDeliveries)/2, memoryTime
	if b.careless {
		long = time.Second
	}
	if err := errors.Join(notify(ctx, client, n), notifyMany(ctx, client, n)); err != nil {
		return err
	}
	if _, err := pool.Exec(ctx, "vacuum analyze"); err != nil {
		return err
	}
	b.say("  %d deliveries wait", 2*n)
	peak, err := watchWorker(ctx, url, b.heap, long)
	if err != nil {
		return err
	}
	var sent float64
	if err := pool.QueryRow(ctx, "select count(*) from weir.run where status = 'sent'").Scan(&sent); err != nil {
		return err
	}
	if sent == 0 {
		return errors.New("the worker sent nothing")
	}
	r.figures["memory_mb"], r.details["memory: deliveries sent meanwhile"] = spreadOf(peak), spreadOf(sent)
	return nil
}

// watchWorker starts a worker process, and returns the peak of its memory in MB after it has worked for so long.
func watchWorker(ctx context.Context, url, heap string, long time.Duration) (peak float64, err error) {
	self, err := os.Executable()
	if err != nil {
		return 0, err
	}
	cmd := exec.CommandContext(ctx, self)
	cmd.Env = append(os.Environ(), workerEnv+"="+url, heapEnv+"="+heap)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, err
	}
	if err := cmd.Start(); err != nil {
		return 0, err
	}
	select {
	case <-time.After(long):
		peak, err = peakOf(cmd.Process.Pid)
	case <-ctx.Done():
		err = ctx.Err()
	}
	return peak, errors.Join(err, in.Close(), cmd.Wait())
}

// peakOf is the most that was resident of a process, in MB.
func peakOf(pid int) (float64, error) {
	status, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(status)) {
		if text, ok := strings.CutPrefix(line, "VmHWM:"); ok {
			kb, err := strconv.ParseFloat(strings.TrimSpace(strings.TrimSuffix(strings.TrimSpace(text), "kB")), 64)
			return kb / 1024, err
		}
	}
	return 0, fmt.Errorf("process %d tells no VmHWM", pid)
}

// beWorker is the worker process: as users have it, with a provider that takes 5 ms.
func beWorker(ctx context.Context, url, heap string, until io.Reader) error {
	cfg, err := pgxpool.ParseConfig(url)
	if err != nil {
		return err
	}
	cfg.MaxConns = poolSize
	pool, err := pgxpool.NewWithConfig(ctx, cfg)
	if err != nil {
		return err
	}
	defer pool.Close()
	fleet, err := workers.New(pool, &workers.Config{
		Channels: map[string]channel.Channel{"bench": &sender{5 * time.Millisecond}}, Logger: slog.New(slog.DiscardHandler),
		Delivery: workers.DeliveryConfig{MaxWorkers: manyWorkers}, Observer: workers.ObserverFunc(func(context.Context, workers.Event) {}),
	})
	if err != nil {
		return err
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- fleet.Run(ctx) }()
	select {
	case err := <-ended:
		return err
	case <-endOf(until):
	}
	if heap != "" {
		err = writeHeap(heap)
	}
	stop()
	return errors.Join(err, <-ended)
}

func endOf(r io.Reader) <-chan struct{} {
	ended := make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, r)
		close(ended)
	}()
	return ended
}

func writeHeap(path string) (err error) {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	return pprof.Lookup("heap").WriteTo(f, 0)
}
