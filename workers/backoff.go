package workers

import (
	"math/rand/v2"
	"time"
)

// minBackoff is the floor of every delay: full jitter may draw almost nothing.
const minBackoff = time.Second

// Backoff spaces failed tries: full jitter over First × 2ⁿ, at most Max, at least 1 s (or First, where that is less).
// The delay begins when the failure is written, by the database's clock.
type Backoff struct {
	// First is the span of the first delay. For deliveries it defaults to 30 s.
	First time.Duration
	// Max bounds the span. For deliveries it defaults to 1 h.
	Max time.Duration
}

// Delay draws the delay before the next try, after failures failed ones. It is positive for every input.
func (b Backoff) Delay(failures int) time.Duration {
	span := b.First
	for range failures - 1 {
		if span >= b.Max/2 {
			span = b.Max
			break
		}
		span *= 2
	}
	span = min(span, b.Max)
	low := min(minBackoff, b.First)
	if span <= low {
		return low
	}
	return low + rand.N(span-low)
}
