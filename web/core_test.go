package web

import (
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The behaviours of the core, by number. What needs a browser is in test/browser.
func TestSessionCore_Behaviours(t *testing.T) {
	t.Parallel()
	newEngine(t, "session/test/main.ts").runAll(t)
}

// Random lives, a million events with WEIR_LONG=1, under the invariants of the contract: no unsaved edit without a slot,
// no slot deleted before its edit was acknowledged or given up, no save in conflict, no base lowered, one request at a
// time, "saved" said only of what is stored, and in the end no edit that is nowhere.
func TestSessionCore_RandomLivesLoseNoEdit(t *testing.T) {
	t.Parallel()
	events, seed := 100_000, seedOf(t)
	if raceEnabled {
		events = 20_000
	}
	if os.Getenv("WEIR_LONG") != "" {
		events = 1_000_000
	}
	t.Logf("WEIR_SEED=%d, %d events", seed, events)
	e := newEngine(t, "session/test/main.ts")
	seen := e.call(e.export("live"), seed, events).ToObject(e.vm)
	var missing []string
	all := 0
	table, err := transitions()
	require.NoError(t, err)
	for _, row := range table {
		for _, from := range row.from {
			to := row.to
			if to == "=" {
				to = from
			}
			all++
			if v := seen.Get(from + " → " + to); v == nil {
				missing = append(missing, from+" "+row.on+" "+to)
			}
		}
	}
	t.Logf("%d of %d transitions seen, not seen: %v", all-len(missing), all, missing)
	if events >= 1_000_000 {
		require.Empty(t, missing)
	}
	require.Less(t, len(missing), all/5, "too many transitions were never seen")
}

// The same of whole tabs, with the desk, the drafts in two places, the locks and the recovery of siblings: pages sleep in the
// back/forward cache, are copied and killed, the storage gets full or loses its last writes, and the network answers anything.
func TestSessionTabs_RandomLivesLoseNoEdit(t *testing.T) {
	t.Parallel()
	steps := 5_000
	if raceEnabled {
		steps = 1_000
	}
	if os.Getenv("WEIR_LONG") != "" {
		steps = 400_000
	}
	seed := seedOf(t)
	t.Logf("WEIR_SEED=%d, %d steps", seed, steps)
	e := newEngine(t, "session/test/main.ts")
	seen := e.call(e.export("tabs"), seed, steps).Export()
	t.Logf("seen: %v", seen)
	var must []string
	if steps >= 5_000 {
		must = append(must, "adopted", "discarded a sibling", "merged", "discarded", "woke", "power cut", "in conflict", "in retrying", "in auth_required", "in orphaned")
	}
	if steps >= 100_000 {
		must = append(must, "kept mine", "woke without its name", "forget", "in blocked", "in rejected", "in reload_required")
	}
	for _, what := range must {
		require.Contains(t, seen, what)
	}
}

// seedOf is WEIR_SEED, or another one each time.
func seedOf(t *testing.T) int64 {
	t.Helper()
	if s := os.Getenv("WEIR_SEED"); s != "" {
		seed, err := strconv.ParseInt(s, 10, 64)
		require.NoError(t, err)
		return seed
	}
	return time.Now().UnixNano() % 1_000_000_000
}
