package workers

import (
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

func TestClean_MakesTextStorable(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"":                     "",
		"plain: é ✓ 🙂":         "plain: é ✓ 🙂",
		"a\x00b\x00":           "a\uFFFDb\uFFFD",
		"a\xff\xfeb":           "a\uFFFDb",
		"half \xf0\x9f\x98":    "half \uFFFD",
		"\xed\xa0\x80":         "\uFFFD", // half of a surrogate pair
		"\xc0\x80":             "\uFFFD", // an overlong NUL
		"tab\tand\nline\r\x7f": "tab\tand\nline\r\x7f",
	} {
		require.Equal(t, want, clean(in, 100), "%q", in)
	}
}

func TestClean_MasksWhatLooksLikeACredential(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		"dial postgres://weir:hunter2@db:5432/x: refused": "dial postgres://weir:***@db:5432/x: refused",
		"smtp+tls://a:hunter2@mx and amqp://b:hunter2@mq": "smtp+tls://a:***@mx and amqp://b:***@mq",
		"https://:hunter2@host/":                          "https://:***@host/",
		"postgres://weir:hun@hunter2@db/x":                "postgres://weir:***@db/x", // an @ that is not encoded
		"http://localhost:8080/path?to=1":                 "http://localhost:8080/path?to=1",
		"Authorization: Bearer hunter2.hunter2-hunter2":   "Authorization: Bearer ***",
		"authorization: basic aHVudGVyMg==hunter2":        "authorization: basic ***",
		"password=hunter2":                                "password=***",
		"host=db password=hunter2 user=weir":              "host=db password=*** user=weir",
		`{"password": "hunter2", "user": "weir"}`:         `{"password": "***", "user": "weir"}`,
		"PASSWD: hunter2;x":                               "PASSWD: ***;x",
		"api_key=hunter2&a=b":                             "api_key=***&a=b",
		"api-key = hunter2":                               "api-key = ***",
		"apikey:hunter2":                                  "apikey:***",
		"access_token=hunter2, client_secret='hunter2'":   "access_token=***, client_secret='***'",
		"no secret here, the token ring is down":          "no secret here, the token ring is down",
	} {
		require.Equal(t, want, clean(in, 1000), in)
	}
}

// The search ends somewhere in a long text; what is cut in two there must not come out unmasked.
func TestClean_MasksACredentialWhereTheSearchEnds(t *testing.T) {
	t.Parallel()
	for name, in := range map[string]string{
		"that begins before the limit":   strings.Repeat("x", 90) + " postgres://u:hunter2@h",
		"that is longer than the search": strings.Repeat("x", 50) + " postgres://u:" + strings.Repeat("hunter2", 2000) + "@h",
		"after one whose mask is shorter than it": "password=" + strings.Repeat("p", 100+searchBeyond-50) +
			" postgres://u:hunter2" + strings.Repeat("hunter2", 100) + "@h",
		"a token that ends there": "password=" + strings.Repeat("p", 100+searchBeyond-32) + " Bearer hunter2hunter2hunter2",
	} {
		require.NotContains(t, clean(in, 100), "hunter2", name)
	}
}

func TestClean_CutsAtARuneAndSaysSo(t *testing.T) {
	t.Parallel()
	require.Equal(t, strings.Repeat("x", 100), clean(strings.Repeat("x", 100), 100))
	for _, unit := range []string{"x", "é", "✓", "🙂"} {
		for _, limit := range []int{maxCode, maxExternalRef, maxMessage} {
			for pad := range 5 {
				got := clean(strings.Repeat("y", pad)+strings.Repeat(unit, limit), limit)
				require.True(t, utf8.ValidString(got))
				if unit == "x" && pad == 0 {
					continue
				}
				require.LessOrEqual(t, len(got), limit)
				require.Greater(t, len(got), limit-len(cut)-4)
				require.True(t, strings.HasSuffix(got, cut), "%q", got)
				require.NotContains(t, got, "\uFFFD", "a cut rune is left out whole")
			}
		}
	}
}

// What an application returns may be of any length; cleaning it must not outlast a lease.
func TestClean_OfAHugeTextIsQuick(t *testing.T) {
	t.Parallel()
	for _, unit := range []string{"é", "password=", "a://b:", "\x00\xff", "bearer "} {
		began := time.Now()
		clean(strings.Repeat(unit, 8<<20/len(unit)), maxMessage)
		require.Less(t, time.Since(began), time.Second, unit)
	}
}

func FuzzClean(f *testing.F) {
	for _, seed := range []string{
		"", "\x00", "\xff\xfe", "é\xc3", "\xed\xa0\x80", "password=hunter2", "postgres://u:p@h", "Bearer abcdefghijkl",
		strings.Repeat("🙂", 2000), strings.Repeat("\xff", 600), strings.Repeat("a\x00", 3000), strings.Repeat("token=x;", 1500),
	} {
		for _, limit := range []int{maxCode, maxExternalRef, maxMessage} {
			f.Add(seed, limit)
		}
	}
	f.Fuzz(func(t *testing.T, s string, limit int) {
		limit = len(cut) + int(uint(limit)%maxMessage)
		got := clean(s, limit)
		switch {
		case !utf8.ValidString(got):
			t.Fatalf("not UTF-8: %q", got)
		case strings.ContainsRune(got, 0):
			t.Fatalf("holds a NUL: %q", got)
		case len(got) > limit:
			t.Fatalf("%d bytes for a limit of %d", len(got), limit)
		}
	})
}
