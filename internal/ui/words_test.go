package ui

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/jobs"
)

func TestVisible_ShowsWhatCannotBeSeen(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"plain, grüß, 日本, 👍":           "plain, grüß, 日本, 👍",
		"two\nlines\tand a tab":        "two\nlines and a tab",
		"\x00\x1b[31m\x7f":             `\u0000\u001b[31m\u007f`,
		"\u202eright to left\u2069":    `\u202eright to left\u2069`,
		"zero\u200bwidth\ufeff":        `zero\u200bwidth\ufeff`,
		"no\u00a0break\u2028line":      `no\u00a0break\u2028line`,
		"\xff\xc3(":                    `\xff\xc3(`,
		"\U000e0041 a tag of language": `\U000e0041 a tag of language`,
		"\ufffd is a character itself": "\ufffd is a character itself",
		"":                             "",
	} {
		require.Equal(t, want, visible(in))
	}
}

func TestRelative_SaysOneUnit(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	for d, want := range map[time.Duration]string{
		0: "in 0 s", 59 * time.Second: "in 59 s", -90 * time.Second: "1 min ago", 3 * time.Hour: "in 3 h", -72 * time.Hour: "3 days ago",
	} {
		require.Equal(t, want, relative(now, now.Add(d)))
	}
}

func TestDoubt_SaysWhatAnUnknownOutcomeMeans(t *testing.T) {
	t.Parallel()
	ended := time.Now()
	delivery, own := &jobs.Run{Kind: "delivery"}, &jobs.Run{Kind: "order"}
	over := &jobs.Run{Kind: "delivery", FinishedAt: &ended}
	for _, c := range []struct {
		run             *jobs.Run
		effect, outcome string
		want            string
	}{
		{delivery, "at_least_once", "unknown", "may have been delivered; is sent again"},
		{delivery, "idempotent", "unknown", "may have been delivered; is sent again with the same key, and counts once"},
		{own, "at_least_once", "unknown", "may have taken effect; is done again"},
		{own, "reconciled", "unknown", "may have taken effect; the provider is asked what happened"},
		{own, "transactional", "unknown", "is looked up before the run goes on"},
		{delivery, "at_least_once", "started", "under way"},
		{over, "at_least_once", "started", "may have been delivered; the run has ended, so it is not tried again"},
		{over, "at_least_once", "unknown", "may have been delivered; the run has ended, so it is not tried again"},
		{delivery, "at_least_once", "ok", ""},
		{over, "at_least_once", "failed", ""},
	} {
		require.Equal(t, c.want, doubt(c.run, jobs.Receipt{Effect: c.effect, Outcome: c.outcome}), "%s %s", c.effect, c.outcome)
	}
}
