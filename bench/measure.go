package main

import (
	"context"
	"fmt"
	"strings"
)

// measurement is something that is not a contest's rate.
type measurement struct {
	name string
	// full: only in the full run.
	full bool
	do   func(b *bench, ctx context.Context, r *report) error
}

// measurements come after the contests, in this order.
func measurements() []measurement {
	return []measurement{
		{name: "heartbeat", do: (*bench).heartbeat},
		{name: "latency", do: (*bench).latency},
		{name: "memory", full: true, do: (*bench).memory},
		{name: "cleaning", full: true, do: (*bench).cleaning},
		{name: "long transaction", full: true, do: (*bench).longTransaction},
		{name: "growth", full: true, do: (*bench).growth},
	}
}

// wanted says whether --only names it.
func (o options) wanted(name string) bool {
	if o.only == "" {
		return true
	}
	for word := range strings.SplitSeq(o.only, ",") {
		if word = strings.TrimSpace(word); word != "" && strings.Contains(name, word) {
			return true
		}
	}
	return false
}

func (b *bench) say(format string, args ...any) {
	if b.progress != nil {
		fmt.Fprintf(b.progress, format+"\n", args...)
	}
}

func (o options) roundsWanted() int {
	switch {
	case o.rounds > 0:
		return o.rounds
	case o.quick:
		return 3
	}
	return 7
}

// measure runs what is wanted.
func (b *bench) measure(ctx context.Context) (*report, error) {
	r := newReport()
	rounds := b.roundsWanted()
	for round := range rounds {
		for _, c := range all() {
			if !b.wanted(c.name) {
				continue
			}
			one, err := b.round(ctx, c)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", c.name, err)
			}
			r.results[c.name] = append(r.results[c.name], one)
			b.say("round %d of %d: %-28s %9.0f /s", round+1, rounds, c.name, one.Rate)
		}
	}
	r.compare()
	for _, m := range measurements() {
		if m.full && b.quick || !b.wanted(m.name) {
			continue
		}
		b.say("%s …", m.name)
		if err := m.do(b, ctx, r); err != nil {
			return nil, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	return r, nil
}
