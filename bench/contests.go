package main

import (
	"context"
	"time"
)

// all are the contests, in the order of a round.
func all() []contest {
	return []contest{
		{"river", 80_000, riverNoop},
		{"delivery", 40_000, delivery(0, notify)},
		{"delivery 5 ms", 40_000, delivery(5*time.Millisecond, notify)},
		{"bulk", 80_000, delivery(0, notifyMany)},
		{"bulk 5 ms", 80_000, delivery(5*time.Millisecond, notifyMany)},
	}
}

// more measures what is no rate.
func (b *bench) more(context.Context, *report) error { return nil }
