package workerstest_test

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/internal/smtpsink"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/channel"
	"github.com/weirqueue/weir/workers/channel/email"
	"github.com/weirqueue/weir/workers/workerstest"
)

// The built-in email channel against a real SMTP server.
func TestRunChannel_EmailPasses(t *testing.T) {
	t.Parallel()
	var silent atomic.Pointer[chan struct{}]
	sink, err := smtpsink.Start(smtpsink.Config{Behaviour: func(smtpsink.Attempt) smtpsink.Action {
		if end := silent.Load(); end != nil {
			return smtpsink.HoldAnswer(*end) // the mail is taken, and nobody learns of it
		}
		return smtpsink.Accept()
	}})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, sink.Close()) })
	host, port, err := net.SplitHostPort(sink.Addr())
	require.NoError(t, err)
	number, err := strconv.Atoi(port)
	require.NoError(t, err)

	workerstest.RunChannel(t, workerstest.ChannelConfig{
		Pool: pgtest.Pool(t),
		Channel: func() (channel.Channel, error) {
			return email.New(email.Config{
				Host: host, Port: number, From: "weir@sender.example", TLS: email.TLSNone, HELO: "client.example",
				Logger: slog.New(slog.DiscardHandler),
			})
		},
		Notification: func(i int) jobs.Notification {
			return jobs.Notification{To: []jobs.Recipient{jobs.Email(fmt.Sprintf("ada%d@example.com", i))}, Subject: "Hi", Text: "Hello"}
		},
		Taken: func(_ context.Context, m channel.Message) (n int, err error) {
			for _, mail := range sink.Mails() {
				if strings.Contains(mail.MessageID, m.RunID) && mail.To[0] == m.Address {
					n++
				}
			}
			return n, nil
		},
		Silence: func() func() {
			end := make(chan struct{})
			silent.Store(&end)
			return func() { silent.Store(nil); close(end) }
		},
	})
}
