package smtpsink_test

import (
	"errors"
	"io"
	"net/textproto"
	"syscall"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/smtpsink"
)

const ada, bob = "ada@example.org", "bob@example.org"

func requireReply(t *testing.T, err error, code int, text string) {
	t.Helper()
	var reply *textproto.Error
	require.ErrorAs(t, err, &reply)
	assert.Equal(t, code, reply.Code)
	assert.Equal(t, text, reply.Msg)
}

func TestTimes_RefusesEachRecipientSoOftenAndThenTakesTheMail(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Config{Behaviour: smtpsink.Times(2, smtpsink.Refuse(451, "4.3.0", "later"))})
	c := dial(t, s)
	for _, to := range []string{ada, bob} {
		for range 2 {
			requireReply(t, c.send(hello, to), 451, "4.3.0 later")
			require.NoError(t, c.Reset())
		}
		require.NoError(t, c.send(hello, to))
	}
	assert.Equal(t, 2, s.Count())
}

func TestByRecipient_AcceptsWhoIsNotNamed(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Config{Behaviour: smtpsink.ByRecipient(map[string]smtpsink.Behaviour{
		ada: smtpsink.Always(smtpsink.Refuse(550, "5.1.1", "no such user")),
	})})
	c := dial(t, s)
	requireReply(t, c.send(hello, ada), 550, "5.1.1 no such user")
	require.NoError(t, c.Rcpt(bob), "a refused recipient does not end the mail")
	require.NoError(t, c.Reset())
	require.NoError(t, c.send(hello, bob))
	assert.Equal(t, []string{bob}, s.Mails()[0].To)
}

func TestBehaviour_SeesWhoSendsToWhomAndHowOften(t *testing.T) {
	t.Parallel()
	attempts := make(chan smtpsink.Attempt, 3)
	s := start(t, smtpsink.Config{Behaviour: func(a smtpsink.Attempt) smtpsink.Action {
		attempts <- a
		return smtpsink.Accept()
	}})
	c := dial(t, s)
	require.NoError(t, c.send(hello, ada))
	require.NoError(t, c.send(hello, bob))
	require.NoError(t, c.send(hello, ada))
	assert.Equal(t, smtpsink.Attempt{From: "weir@example.com", To: ada, N: 1}, <-attempts)
	assert.Equal(t, smtpsink.Attempt{From: "weir@example.com", To: bob, N: 1}, <-attempts)
	assert.Equal(t, smtpsink.Attempt{From: "weir@example.com", To: ada, N: 2}, <-attempts)
}

func TestRefuse_WithoutAnEnhancedCode(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Config{Behaviour: smtpsink.Always(smtpsink.Refuse(450, "", "busy"))})
	requireReply(t, dial(t, s).send(hello, ada), 450, "busy")
	assert.Panics(t, func() { smtpsink.Refuse(450, "4.x", "") })
}

func TestRefuseData_MailIsNotReceived(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Config{Behaviour: smtpsink.Times(1, smtpsink.RefuseData(554, "5.7.1", "spam"))})
	c := dial(t, s)
	done, err := c.write(hello, ada)
	require.NoError(t, err, "the refusal comes after the final dot")
	requireReply(t, done(), 554, "5.7.1 spam")
	assert.Zero(t, s.Count())
	require.NoError(t, c.send(hello, ada), "the connection goes on")
}

func TestHoldAnswer_MailIsReceivedBeforeItIsAnswered(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := start(t, smtpsink.Config{Behaviour: smtpsink.Always(smtpsink.HoldAnswer(release))})
	c := dial(t, s)
	answer := make(chan error, 1)
	go func() { answer <- c.send(hello, ada) }()
	require.NoError(t, s.Wait(t.Context(), 1))
	assert.Empty(t, answer)
	close(release)
	require.NoError(t, <-answer)
	require.NoError(t, c.Noop(), "the connection goes on")
	assert.Equal(t, 1, s.Count())
}

func TestHoldAnswer_MailIsReceivedAlthoughTheClientGoesAway(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Config{Behaviour: smtpsink.Always(smtpsink.HoldAnswer(nil))})
	c := dial(t, s)
	answer := make(chan error, 1)
	go func() { answer <- c.send(hello, ada) }()
	require.NoError(t, s.Wait(t.Context(), 1))
	require.NoError(t, c.conn.Close())
	require.Error(t, <-answer)
	eventually(t, func() bool { return s.Conns() == 0 })
	assert.Equal(t, 1, s.Count())
}

func TestHold_MailIsReceivedOnceItIsReleased(t *testing.T) {
	t.Parallel()
	release, held := make(chan struct{}), make(chan struct{})
	s := start(t, smtpsink.Config{Behaviour: func(smtpsink.Attempt) smtpsink.Action {
		close(held)
		return smtpsink.Hold(release)
	}})
	c := dial(t, s)
	answer := make(chan error, 1)
	go func() { answer <- c.send(hello, ada) }()
	<-held
	assert.Zero(t, s.Count())
	close(release)
	require.NoError(t, <-answer)
	assert.Equal(t, 1, s.Count())
}

// PIPELINING is on offer: a client may send its next command before it has the answer.
func TestHoldAnswer_KeepsWhatTheClientSaysMeanwhile(t *testing.T) {
	t.Parallel()
	release := make(chan struct{})
	s := start(t, smtpsink.Config{Behaviour: smtpsink.Always(smtpsink.HoldAnswer(release))})
	c := dial(t, s)
	dot(t, c, hello)
	require.NoError(t, s.Wait(t.Context(), 1))
	_, err := io.WriteString(c.conn, "NOOP\r\n")
	require.NoError(t, err)
	close(release)
	_, _, err = c.Text.ReadResponse(250)
	require.NoError(t, err)
	_, text, err := c.Text.ReadResponse(250)
	require.NoError(t, err)
	assert.Contains(t, text, "nothing", "the answer to NOOP")
}

func TestHold_MailIsNotReceivedWhenTheClientGoesAway(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Config{Behaviour: smtpsink.Always(smtpsink.Hold(nil))})
	c := dial(t, s)
	dot(t, c, hello)
	require.NoError(t, c.conn.Close())
	eventually(t, func() bool { return s.Conns() == 0 })
	assert.Zero(t, s.Count())
}

// dot sends a mail with its final dot, and leaves the answer unread.
func dot(t *testing.T, c client, body string) {
	t.Helper()
	require.NoError(t, c.Mail("weir@example.com"))
	require.NoError(t, c.Rcpt(ada))
	_, err := c.Data()
	require.NoError(t, err)
	_, err = io.WriteString(c.conn, body+".\r\n")
	require.NoError(t, err)
}

func TestDrop_ResetsTheConnectionWithoutAnAnswer(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		action smtpsink.Action
		count  int
	}{
		"before the mail is taken":   {smtpsink.Drop(), 0},
		"after the mail is received": {smtpsink.DropAnswer(), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := start(t, smtpsink.Config{Behaviour: smtpsink.Always(tc.action)})
			err := dial(t, s).send(hello, ada)
			assert.True(t, errors.Is(err, syscall.ECONNRESET), "%v", err)
			eventually(t, func() bool { return s.Conns() == 0 })
			assert.Equal(t, tc.count, s.Count())
		})
	}
}

func TestMailToSeveral_FollowsTheFirstWhoIsNotAccepted(t *testing.T) {
	t.Parallel()
	s := start(t, smtpsink.Config{Behaviour: smtpsink.ByRecipient(map[string]smtpsink.Behaviour{
		bob: smtpsink.Always(smtpsink.RefuseData(554, "5.7.1", "bob wants none")),
	})})
	for _, to := range [][]string{{ada, bob}, {bob, ada}} {
		requireReply(t, dial(t, s).send(hello, to...), 554, "5.7.1 bob wants none")
	}
	assert.Zero(t, s.Count())
}
