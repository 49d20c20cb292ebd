package demo

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/weirqueue/weir/jobs"
)

// Play sends the demo's deliveries, has a plan carried out, kills a worker in each, resets a branch, waits until everything is finished, and reports.
func (d *Demo) Play(ctx context.Context) (*Report, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, deadline, fmt.Errorf("the demo did not end within %s", deadline))
	defer cancel()
	ctx, fail := context.WithCancelCause(ctx)
	defer fail(nil)
	go d.watchFleet(ctx, fail)

	var played []playedLetter
	for _, l := range letters {
		p, err := d.send(ctx, l)
		if err != nil {
			return nil, err
		}
		played = append(played, p)
	}
	for _, p := range played {
		if _, err := d.client.Wait(ctx, p.run); err != nil {
			return nil, err
		}
	}
	d.say("%d deliveries finished", len(played))

	p, err := d.send(ctx, killed)
	if err != nil {
		return nil, err
	}
	played = append(played, p)
	if err := d.killOwner(ctx, p.run); err != nil {
		return nil, err
	}
	if _, err := d.client.Wait(ctx, p.run); err != nil {
		return nil, err
	}
	d.say("another worker finished it")
	plan, err := d.carryOut(ctx)
	if err != nil {
		return nil, err
	}
	reset, err := d.reset(ctx)
	if err != nil {
		return nil, err
	}
	return d.report(ctx, played, plan, reset)
}

type playedLetter struct {
	letter
	run jobs.RunID
}

func (d *Demo) send(ctx context.Context, l letter) (playedLetter, error) {
	res, err := d.client.Notify(ctx, jobs.Notification{
		To: []jobs.Recipient{jobs.Email(l.to)}, Subject: l.subject, Text: l.text,
	}, l.opts)
	if err != nil {
		return playedLetter{}, fmt.Errorf("notify %s: %w", l.to, err)
	}
	return playedLetter{letter: l, run: res.Runs[0].ID}, nil
}

// killOwner waits until the mail server holds the mail and the run has an owner, and kills that one.
func (d *Demo) killOwner(ctx context.Context, id jobs.RunID) error {
	select {
	case <-d.script.holding:
	case <-ctx.Done():
		return context.Cause(ctx)
	}
	run, err := d.client.Get(ctx, id)
	if err != nil {
		return err
	}
	return d.killAndReplace(run.LeaseOwner, "in mid-delivery")
}

// killAndReplace kills the worker that holds leases under owner, and starts another one.
func (d *Demo) killAndReplace(owner, where string) error {
	pid, err := d.fleet.kill(owner)
	if err != nil {
		return err
	}
	d.say("killed worker process %d %s (SIGKILL); its lease runs out in %s", pid, where, lease)
	pid, err = d.fleet.spawn()
	if err != nil {
		return err
	}
	d.say("worker process %d is up in its place", pid)
	return nil
}

func (d *Demo) watchFleet(ctx context.Context, fail context.CancelCauseFunc) {
	ticker := time.NewTicker(200 * time.Millisecond)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			if err := d.fleet.unexpected(); err != nil {
				fail(err)
				return
			}
		}
	}
}

// Traffic keeps something to watch in the pages: a delivery every few seconds, until ctx ends.
func (d *Demo) Traffic(ctx context.Context) error {
	ticker := time.NewTicker(3 * time.Second)
	defer ticker.Stop()
	for n := 1; ; n++ {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := d.fleet.unexpected(); err != nil {
			return err
		}
		_, err := d.client.Notify(ctx, jobs.Notification{
			To: []jobs.Recipient{jobs.Email(fmt.Sprintf("reader%d@example.com", n))}, Subject: fmt.Sprintf("Letter %d", n),
			Text: "Something to watch.",
		}, nil)
		if err != nil && ctx.Err() == nil {
			return errors.Join(errors.New("notify"), err)
		}
	}
}
