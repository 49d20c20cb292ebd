package jobs_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

// refusal is input that must be refused by an *InvalidError of the field, which names the value and the bound.
type refusal struct {
	name  string
	n     func(*jobs.Notification)
	o     *jobs.Opts
	field string
	value string // a part of the error
	bound string // a part of the error
}

func refusals() []refusal {
	to := func(r ...jobs.Recipient) func(*jobs.Notification) { return func(n *jobs.Notification) { n.To = r } }
	email := func(address string) func(*jobs.Notification) { return to(jobs.Email(address)) }
	subject := func(s string) func(*jobs.Notification) { return func(n *jobs.Notification) { n.Subject = s } }
	text := func(s string) func(*jobs.Notification) { return func(n *jobs.Notification) { n.Text = s } }
	html := func(s string) func(*jobs.Notification) { return func(n *jobs.Notification) { n.HTML = s } }
	many := make([]jobs.Recipient, jobs.MaxRecipients+1)
	const plain = "a plain email address"
	const control = "free of control characters"
	key := func(k string) *jobs.Opts { return &jobs.Opts{IdempotencyKey: k} }
	return []refusal{
		{"nobody", to(), nil, "Notification.To", "0 recipients", "from 1 to 1000"},
		{"too many", to(many...), nil, "Notification.To", "1001 recipients", "from 1 to 1000"},
		{"twice", to(jobs.Email("a@x.de"), jobs.Email("a@x.de")), nil, "Notification.To[1]", "a@x.de", "different"},
		{"no channel", to(jobs.Recipient{Address: "a"}), nil, "Notification.To[0].Channel", `""`, "channel's name"},
		{"channel name", to(jobs.Recipient{Channel: "E mail", Address: "a"}), nil, "Notification.To[0].Channel", "E mail", "channel's name"},
		{"no address", email(""), nil, "Notification.To[0].Address", `""`, "from 1 to 320"},
		{"long address", to(jobs.Recipient{Channel: "x", Address: strings.Repeat("a", 321)}), nil, "Notification.To[0].Address", "aaa…", "from 1 to 320"},
		{"long local part", email(strings.Repeat("a", 65) + "@x.de"), nil, "Notification.To[0].Address", "aaa", "64 bytes"},
		{"no domain", email("ada"), nil, "Notification.To[0].Address", "ada", plain},
		{"display name", email("Ada <ada@x.de>"), nil, "Notification.To[0].Address", "Ada", plain},
		{"two addresses", email("a@x.de, b@x.de"), nil, "Notification.To[0].Address", "a@x.de, b", plain},
		{"comment", email("a@x.de (Ada)"), nil, "Notification.To[0].Address", "(Ada)", plain},
		{"not ASCII", email("ada@müller.de"), nil, "Notification.To[0].Address", "müller", "xn--"},
		// Header injection.
		{"CRLF in an address", email("a@x.de\r\nBcc: b@x.de"), nil, "Notification.To[0].Address", "Bcc", control},
		{"LF in an address", email("a@x.de\n"), nil, "Notification.To[0].Address", "a@x.de", control},
		{"NUL in an address", to(jobs.Recipient{Channel: "x", Address: "a\x00b"}), nil, "Notification.To[0].Address", "b", control},
		{"DEL in an address", to(jobs.Recipient{Channel: "x", Address: "a\x7f"}), nil, "Notification.To[0].Address", "a", control},
		{"half a rune in an address", to(jobs.Recipient{Channel: "x", Address: "a\xf4\x8d"}), nil, "Notification.To[0].Address", "a", control},
		{"CRLF in the subject", subject("a\r\nBcc: b@x.de"), nil, "Notification.Subject", "Bcc", "one line"},
		{"CR in the subject", subject("a\rb"), nil, "Notification.Subject", "a", "one line"},
		{"long subject", subject(strings.Repeat("s", 901)), nil, "Notification.Subject", "901 bytes", "900"},
		{"NUL in the subject", subject("a\x00"), nil, "Notification.Subject", "a", "NUL"},
		{"nothing to say", text(" \n"), nil, "Notification.Text", `\n`, "not empty"},
		{"NUL in the text", text("a\x00"), nil, "Notification.Text", "a", "NUL"},
		{"half a rune in the text", text("a\xf4\x8d"), nil, "Notification.Text", "a", "UTF-8"},
		{"a surrogate in the text", text("a\xed\xa0\xbd"), nil, "Notification.Text", "a", "UTF-8"},
		{"long text", text(strings.Repeat("t", jobs.MaxBodyBytes+1)), nil, "Notification.Text", "524289 bytes", "524288"},
		{"NUL in the HTML", html("\x00"), nil, "Notification.HTML", "", "NUL"},
		{"long HTML", html(strings.Repeat("t", jobs.MaxBodyBytes+1)), nil, "Notification.HTML", "524289 bytes", "524288"},
		// RV-18.
		{"half a rune in the key", nil, key("\xf4\x8d"), "Opts.IdempotencyKey", "", "UTF-8"},
		{"NUL in the key", nil, key("k\x00"), "Opts.IdempotencyKey", "k", "NUL"},
		{"long key", nil, key(strings.Repeat("k", 10_000)), "Opts.IdempotencyKey", "10000 bytes", "500"},
		{"blank key", nil, key(" \t\n"), "Opts.IdempotencyKey", "", "not blank"},
		{"negative budget", nil, &jobs.Opts{MaxAttempts: -1}, "Opts.MaxAttempts", "-1", "from 1 to 1000"},
		{"large budget", nil, &jobs.Opts{MaxAttempts: 1001}, "Opts.MaxAttempts", "1001", "from 1 to 1000"},
		{"priority", nil, &jobs.Opts{Priority: 5}, "Opts.Priority", "5", "from 1 to 4"},
		{"negative priority", nil, &jobs.Opts{Priority: -1}, "Opts.Priority", "-1", "from 1 to 4"},
		{"queue", nil, &jobs.Opts{Queue: "My Queue"}, "Opts.Queue", "My Queue", "lower-case"},
		{"long queue", nil, &jobs.Opts{Queue: strings.Repeat("q", 65)}, "Opts.Queue", "qqq", "64 bytes"},
		{"long ago", nil, &jobs.Opts{ScheduledAt: time.Date(1999, 1, 1, 0, 0, 0, 0, time.UTC)}, "Opts.ScheduledAt", "1999", "2000 and 9999"},
		{"never", nil, &jobs.Opts{ScheduledAt: time.Date(10_000, 1, 1, 0, 0, 0, 0, time.UTC)}, "Opts.ScheduledAt", "10000", "2000 and 9999"},
		{"many tags", nil, &jobs.Opts{Tags: make([]string, 21)}, "Opts.Tags", "21 tags", "20 tags"},
		{"short tag", nil, &jobs.Opts{Tags: []string{"ok-tag", "no"}}, "Opts.Tags[1]", "no", "3 to 255"},
		{"tag with a comma", nil, &jobs.Opts{Tags: []string{"a,b"}}, "Opts.Tags[0]", "a,b", "3 to 255"},
		{"metadata is no JSON", nil, &jobs.Opts{Metadata: []byte("{")}, "Opts.Metadata", "{", "JSON object"},
		{"metadata is a list", nil, &jobs.Opts{Metadata: []byte("[]")}, "Opts.Metadata", "[]", "JSON object"},
		{"metadata is blank", nil, &jobs.Opts{Metadata: []byte(" ")}, "Opts.Metadata", " ", "JSON object"},
		{"metadata with NUL", nil, &jobs.Opts{Metadata: []byte(`{"a":"\u0000"}`)}, "Opts.Metadata", "u0000", "store"},
		{"metadata with half a pair", nil, &jobs.Opts{Metadata: []byte(`{"\uD83D":1}`)}, "Opts.Metadata", "uD83D", "store"},
		{"metadata with half a rune", nil, &jobs.Opts{Metadata: []byte("{\"a\":\"\xf4\x8d\"}")}, "Opts.Metadata", "a", "UTF-8"},
		{"large metadata", nil, &jobs.Opts{Metadata: []byte(`{"a":"` + strings.Repeat("x", 17_000) + `"}`)}, "Opts.Metadata", "17008 bytes", "16384"},
		{"metadata with a huge number", nil, &jobs.Opts{Metadata: []byte(`{"a":1e200000}`)}, "Opts.Metadata", "1e200000", "store"},
		{"metadata with a tiny number", nil, &jobs.Opts{Metadata: []byte(`{"a":[0,{"b":-1E-99999}]}`)}, "Opts.Metadata", "1E-99999", "store"},
	}
}

// Every field: refused by name, with the value and the bound, before anything is written; the transaction goes on.
func TestNotify_RefusesBadInput(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	for _, r := range refusals() {
		t.Run(r.name, func(t *testing.T) {
			n := mail()
			if r.n != nil {
				r.n(&n)
			}
			tx := begin(t, pool, pgx.ReadCommitted)
			_, err := client.NotifyTx(t.Context(), tx, n, r.o)
			require.ErrorIs(t, err, jobs.ErrInvalid)
			var found *jobs.InvalidError
			for _, fault := range flatten(err) {
				var one *jobs.InvalidError
				require.ErrorAs(t, fault, &one)
				if one.Field == r.field {
					found = one
				}
			}
			require.NotNil(t, found, "field %s in: %.300s", r.field, err)
			require.Contains(t, found.Error(), r.value)
			require.Contains(t, found.Bound, r.bound)
			require.Less(t, len(found.Error()), 500)
			require.NotContains(t, found.Error(), "\x00", "an error is logged")
			execSQL(t, tx, "select 1")
			require.NoError(t, tx.Commit(t.Context()))
		})
	}
	require.Equal(t, [5]int{}, rows(t, pool), "nothing was written")
}

func flatten(err error) []error {
	var joined interface{ Unwrap() []error }
	if !errors.As(err, &joined) {
		return []error{err}
	}
	var out []error
	for _, e := range joined.Unwrap() {
		out = append(out, flatten(e)...)
	}
	return out
}

// All faults at once.
func TestNotify_ReportsAllFaults(t *testing.T) {
	t.Parallel()
	client := newClient(t, pgtest.Pool(t))
	_, err := client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{jobs.Email("x"), {}}, Subject: "a\nb"},
		&jobs.Opts{Priority: 9, MaxAttempts: -1, Queue: "Q", Tags: []string{"x"}, Metadata: []byte("x"), IdempotencyKey: " "})
	var fields []string
	for _, fault := range flatten(err) {
		var one *jobs.InvalidError
		require.ErrorAs(t, fault, &one)
		fields = append(fields, one.Field)
	}
	require.ElementsMatch(t, []string{
		"Notification.To[0].Address", "Notification.To[1].Channel", "Notification.To[1].Address", "Notification.Subject", "Notification.Text",
		"Opts.IdempotencyKey", "Opts.MaxAttempts", "Opts.Priority", "Opts.Queue", "Opts.Metadata", "Opts.Tags[0]",
	}, fields)
}

// What is unusual but fine is taken, and stored as it is.
func TestNotify_TakesUnusualInput(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	n := jobs.Notification{
		To: []jobs.Recipient{
			jobs.Email("o'hara+tag@sub.example.co.uk"), jobs.Email(`"quoted.local"@example.com`[1:13] + "@example.com"),
			jobs.Email("a@xn--mller-kva.de"),
			{Channel: "chat", Address: "@ünïcode 🌊"},
		},
		Subject: "", Text: "tab\tand\r\nlines \u2028 \u202e, and \u0001", HTML: "",
	}
	notify(t, client, n, &jobs.Opts{Metadata: []byte(`{"emoji": "🌊", "escaped": "\\\u00e4", "n": 1e10}`)})
	require.Equal(t, 4, value[int](t, pool, "select count(*)::int from weir.run"))
}

// Config.Channels restricts what an enqueuer may name.
func TestNotify_KnownChannelsOnly(t *testing.T) {
	t.Parallel()
	client, err := jobs.NewClient(pgtest.Pool(t), &jobs.Config{Channels: []string{"email", "chat"}})
	require.NoError(t, err)
	_, err = client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{{Channel: "chta", Address: "1"}}, Text: "x"}, nil)
	require.ErrorIs(t, err, jobs.ErrInvalid)
	require.ErrorContains(t, err, "email, chat")
}

// Bad configuration: all faults at once.
func TestNewClient_RefusesBadConfig(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	_, err := jobs.NewClient(pool, &jobs.Config{Schema: "a b", DeliveryQueue: "Q", Channels: []string{"ok", "No"}})
	for _, field := range []string{"Config.Schema", "Config.DeliveryQueue", "Config.Channels[1]"} {
		require.ErrorContains(t, err, field)
	}
	_, err = jobs.NewClient(nil, nil)
	require.Error(t, err)
	_, err = jobs.NewClientFromRiver(nil, pool, nil)
	require.Error(t, err)
}

func TestParseRunID(t *testing.T) {
	t.Parallel()
	const text = "01890a5d-ac96-774b-bcce-b302099a8057"
	id, err := jobs.ParseRunID(text)
	require.NoError(t, err)
	require.Equal(t, text, id.String())
	for _, bad := range []string{"", "x", text + " ", "{" + text + "}", "urn:uuid:" + text, strings.ReplaceAll(text, "-", ""), "\x00"} {
		_, err := jobs.ParseRunID(bad)
		require.ErrorIs(t, err, jobs.ErrInvalid, "%q", bad)
	}
}
