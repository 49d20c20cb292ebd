package workers

import (
	"encoding/json"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// PL-13, L8: an output that passes is stored by PostgreSQL, and comes back as the same value; one that would be refused
// is refused before anything depends on it.
func TestOutput_IsStorableOrRefused(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t, pgtest.MaxConns(1))
	zone := time.FixedZone("", 5*3600+1800)
	for name, c := range map[string]struct {
		out  any
		want string // as JSON; empty: refused
	}{
		"nil":                   {nil, `null`},
		"time with zone":        {time.Date(2026, 1, 2, 3, 4, 5, 600, zone), `"2026-01-02T03:04:05.0000006+05:30"`},
		"NaN":                   {math.NaN(), ``},
		"infinite":              {map[string]any{"x": math.Inf(1)}, ``},
		"channel":               {make(chan int), ``},
		"2 MB":                  {strings.Repeat("x", 2<<20), ``},
		"NUL":                   {"a\x00b", ``},
		"NUL in a key":          {map[string]int{"a\x00": 1}, ``},
		"text of an escape":     {`a\u0000b`, `"a\\u0000b"`},
		"invalid UTF-8":         {"a\xffb", `"a\ufffdb"`},
		"raw invalid UTF-8":     {json.RawMessage("\"a\xffb\""), `"a\ufffdb"`},
		"lone high surrogate":   {json.RawMessage(`"a\ud800b"`), `"a\ufffdb"`},
		"lone low surrogate":    {json.RawMessage(`"\udc00\ud83d\ude00"`), `"\ufffd\ud83d\ude00"`},
		"high without low":      {json.RawMessage(`"\ud800\u0041"`), `"\ufffdA"`},
		"surrogate at the end":  {json.RawMessage(`"\ud800"`), `"\ufffd"`},
		"escaped backslash":     {json.RawMessage(`"\\ud800"`), `"\\ud800"`},
		"number without bounds": {json.RawMessage(`1e999999`), ``},
		"large number":          {json.RawMessage(`1e300`), `1e300`},
		"markup":                {"<&>", `"<&>"`},
	} {
		t.Run(name, func(t *testing.T) {
			text, err := encode(c.out)
			if c.want == "" {
				require.ErrorIs(t, err, ErrOutput)
				return
			}
			require.NoError(t, err)
			require.JSONEq(t, c.want, string(text))
			var stored string
			require.NoError(t, pool.QueryRow(t.Context(), "select $1::text::jsonb::text", string(text)).Scan(&stored))
			require.JSONEq(t, string(text), stored)
		})
	}
}
