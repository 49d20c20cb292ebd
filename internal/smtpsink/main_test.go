package smtpsink_test

import (
	"fmt"
	"net"
	"net/smtp"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weirqueue/weir/internal/smtpsink"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cfg smtpsink.Config) *smtpsink.Sink {
	t.Helper()
	s, err := smtpsink.Start(cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// client is a connection to the sink. Nothing on it takes longer than ten seconds.
type client struct {
	*smtp.Client
	conn net.Conn
}

func dial(t *testing.T, s *smtpsink.Sink) client {
	t.Helper()
	conn, err := net.Dial("tcp", s.Addr())
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close() })
	require.NoError(t, conn.SetDeadline(time.Now().Add(10*time.Second)))
	c, err := smtp.NewClient(conn, "127.0.0.1")
	require.NoError(t, err)
	return client{Client: c, conn: conn}
}

// send goes through one mail, up to the answer to the final dot.
func (c client) send(body string, to ...string) error {
	done, err := c.write(body, to...)
	if err != nil {
		return err
	}
	return done()
}

// write goes through one mail up to the final dot, which done sends.
func (c client) write(body string, to ...string) (done func() error, err error) {
	if err := c.Mail("weir@example.com"); err != nil {
		return nil, err
	}
	for _, rcpt := range to {
		if err := c.Rcpt(rcpt); err != nil {
			return nil, err
		}
	}
	w, err := c.Data()
	if err != nil {
		return nil, err
	}
	if _, err := fmt.Fprint(w, body); err != nil {
		return nil, err
	}
	return w.Close, nil
}

// eventually waits for what the sink notices only after the client has gone.
func eventually(t *testing.T, condition func() bool) {
	t.Helper()
	require.Eventually(t, condition, 5*time.Second, time.Millisecond)
}

const hello = "Message-ID: <1@example.com>\r\nSubject: hi\r\n\r\nHello.\r\n"
