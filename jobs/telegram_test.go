package jobs_test

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/delivery"
	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/receipts"
	"github.com/weirqueue/weir/jobs"
)

// TG-05: the parts are frozen when the message is enqueued, for Telegram only.
func TestNotify_ALongMessageIsSplitForTelegramWhenEnqueued(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	first, second := strings.Repeat("a", 4000), strings.Repeat("🌊", 1000)
	n := jobs.Notification{To: []jobs.Recipient{jobs.Telegram("-100123"), jobs.Email("ada@example.com")}, Subject: "Hi", Text: first + "\n\n" + second, HTML: "<p>"}
	res := notify(t, client, n, nil)
	payload := func(i int) (p delivery.Payload) {
		body := value[string](t, pool, "select convert_from(body, 'UTF8') from weir.payload where run_id = $1", res.Runs[i].ID)
		require.NoError(t, json.Unmarshal([]byte(body), &p))
		return p
	}
	needs := func(i int) []string {
		return value[[]string](t, pool, "select needs from weir.run where id = $1", res.Runs[i].ID)
	}
	chat := payload(0)
	require.Equal(t, []string{"Hi\n\n" + first, second}, chat.Parts)
	require.Empty(t, chat.Text+chat.HTML)
	require.Equal(t, []string{"channel:telegram", receipts.ManySteps}, needs(0))
	mail := payload(1)
	require.Empty(t, mail.Parts)
	require.Equal(t, n.Text, mail.Text)
	require.Equal(t, []string{"channel:email"}, needs(1))

	n.Text = first
	res = notify(t, client, n, nil)
	require.Empty(t, payload(0).Parts)
	require.Equal(t, n.Text, payload(0).Text)
	require.Equal(t, []string{"channel:telegram"}, needs(0))
}

// A process of a version that knows no parts would send the wrong text: it leaves such a run to others.
func TestNotify_AProcessThatKnowsNoPartsDoesNotClaimThem(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	res := notify(t, newClient(t, pool), jobs.Notification{To: []jobs.Recipient{jobs.Telegram("5")}, Text: strings.Repeat("a", 5000)}, nil)
	st, err := fencing.StandingOf(t.Context(), pool, uuid.UUID(res.Runs[0].ID), "channel:telegram")
	require.NoError(t, err)
	require.Equal(t, fencing.ReasonBlocked, st.Reason)
	require.Equal(t, []string{receipts.ManySteps}, st.Lacks)
}

func TestNotify_ChatsAreNumbersOrNames(t *testing.T) {
	t.Parallel()
	client := newClient(t, pgtest.Pool(t))
	try := func(to jobs.Recipient) error {
		_, err := client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{to}, Text: "t"}, nil)
		return err
	}
	for _, good := range []string{"5", "-1001234567890123", "9223372036854775807", "@abcde", "@A_1234567890123456789012345678901"[:33]} {
		require.NoError(t, try(jobs.Telegram(good)), good)
	}
	for _, bad := range []string{"", "0", "-0", "+5", "05", "5.0", "1e3", " 5", "9223372036854775808", "@", "@abcd", "@1abcd", "@ab cde", "@grüße", "@" + strings.Repeat("a", 33), "abcde", "https://t.me/abcde"} {
		err := try(jobs.Telegram(bad))
		require.ErrorIs(t, err, jobs.ErrInvalid, bad)
		require.ErrorContains(t, err, "Notification.To[0].Address")
	}
	require.NoError(t, try(jobs.Recipient{Channel: "sms", Address: "abcde"}), "other channels have other addresses")
}

// TG-05
func TestNotify_TelegramWantsATextThatIsNotEmptyAndNotABook(t *testing.T) {
	t.Parallel()
	client := newClient(t, pgtest.Pool(t))
	to := []jobs.Recipient{jobs.Telegram("5")}
	for _, text := range []string{"", " \n\t\u00a0"} {
		_, err := client.Notify(t.Context(), jobs.Notification{To: to, Subject: "s", Text: text, HTML: "<p>Hi</p>"}, nil)
		require.ErrorIs(t, err, jobs.ErrInvalid)
		require.ErrorContains(t, err, "Notification.Text")
	}
	notify(t, client, jobs.Notification{To: to, Text: strings.Repeat("a", 4096*jobs.MaxParts)}, nil)
	_, err := client.Notify(t.Context(), jobs.Notification{To: to, Text: strings.Repeat("a", 4096*jobs.MaxParts+1)}, nil)
	require.ErrorIs(t, err, jobs.ErrInvalid)
	require.ErrorContains(t, err, "101 telegram messages")
}
