package desk

import (
	"context"
	"iter"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Statements is every statement by its name.
func Statements() iter.Seq2[string, string] {
	return func(yield func(string, string) bool) {
		for _, s := range statements {
			if !yield(s.name, s.sql) {
				return
			}
		}
	}
}

// PruneBy prunes in pages of another size.
func (s *Store) PruneBy(ctx context.Context, page int) (int, error) { return s.prune(ctx, page) }

// MaxStreamsOfUser is the bound of streams of one user.
const MaxStreamsOfUser = maxStreamsOfUser

// Codes is every code of an error that the handler can answer with.
func Codes() []string {
	out := []string{"version_conflict", "too_large", "rate_limited", "method_not_allowed", "invalid", "unavailable", "internal"}
	for _, p := range plain {
		out = append(out, p.code)
	}
	return out
}

// Limiter is the handler's limiter.
type Limiter struct{ l *limiter }

func NewLimiter(perSecond float64, burst, maxUsers int) Limiter {
	return Limiter{newLimiter(perSecond, burst, maxUsers)}
}

func (l Limiter) Wait(user Owner, now time.Time) time.Duration { return l.l.wait(user, now) }

func (l Limiter) Users() int { return l.l.recent.Len() }

// LedgerHash is what the ledger keeps of a PUT's body.
func LedgerHash(t testing.TB, body string) []byte {
	t.Helper()
	n, err := parseJSON("body", []byte(body))
	require.NoError(t, err)
	v, _, err := decodeSave(&n, nil)
	require.NoError(t, err)
	return v.hash()
}
