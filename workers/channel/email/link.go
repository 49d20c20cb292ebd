package email

import (
	"context"
	"errors"
	"io"
	"net/textproto"
	"time"

	"github.com/wneessen/go-mail/smtp"
)

// maxMailsPerLink is when a connection is replaced: many servers limit what they take on one.
const maxMailsPerLink = 100

var errUnasked = errors.New("the server answered what was not asked")

// link is an open connection between two mails. One goroutine uses it at a time.
//
// It drives go-mail's smtp.Client command by command. go-mail's own Client hides what a Send must know: it sends RSET
// after a refusal and waits for the answer, its SendError drops the server's reply and does not unwrap, a failed dial
// does not say at which command, and nothing tells whether the final dot left the process.
type link struct {
	wire   *wire
	client *smtp.Client
	mails  int
	// expiry is set while the link is idle.
	expiry *time.Timer
}

// probe asks an idle connection whether it still works. A connection that fails must be dropped.
func (l *link) probe(ctx context.Context, timeout time.Duration) bool {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	l.wire.allowance = maxReplyBytes
	stop := l.wire.boundBy(ctx)
	err := l.command(l.client.Noop)
	return stop() && err == nil && l.quiet() == nil
}

// deliver sends one mail. nil means that the server took it. After a failure the link must not be used again: an
// answer that is still under way would be read as the answer to the next command.
func (l *link) deliver(ctx context.Context, e envelope) *failure {
	if err := l.command(func() error { return l.client.Mail(e.from) }); err != nil {
		return &failure{stage: stageMail, err: err}
	}
	if err := l.command(func() error { return l.client.Rcpt(e.to) }); err != nil {
		return &failure{stage: stageRcpt, err: err}
	}
	var data io.WriteCloser
	err := l.command(func() (err error) {
		data, err = l.client.Data()
		return err
	})
	if err != nil {
		return &failure{stage: stageData, err: err}
	}
	// Without the final dot the server must not take what it has got.
	if _, err := data.Write(e.data); err != nil {
		return &failure{stage: stageBody, err: err}
	}
	if err := ctx.Err(); err != nil {
		return &failure{stage: stageBody, err: err}
	}
	before := l.wire.written
	// Close writes the rest of the mail with the dot and waits for the answer.
	err = l.command(data.Close)
	if reply := (*textproto.Error)(nil); errors.As(err, &reply) && reply.Code/100 == 2 {
		err = nil // RFC 5321 4.2: an unexpected 2yz is a success
	}
	dotSent := l.wire.written > before
	if err == nil && !dotSent {
		err = errUnasked // Close does not report that it could not write
	}
	if err != nil {
		return &failure{stage: stageAnswer, dotSent: dotSent, err: err}
	}
	l.mails++
	return nil
}

// command runs one command on a quiet link. An answer counts only as a whole line.
func (l *link) command(run func() error) error {
	if err := l.quiet(); err != nil {
		return err
	}
	err := run()
	if l.wire.readErr != nil && !l.wholeLine() {
		return l.wire.readErr
	}
	return err
}

// wholeLine says whether the line that was read last had its end. A failed read alone does not tell: TLS 1.2 reads on
// for a goodbye that has begun to come in behind the answer.
func (l *link) wholeLine() bool {
	r := l.client.Text.R
	if r.UnreadByte() != nil {
		return false
	}
	last, err := r.ReadByte()
	return err == nil && last == '\n'
}

// quiet fails if an answer without a question is waiting: from then on, every answer would be taken for that of the
// command before.
func (l *link) quiet() error {
	if l.client.Text.R.Buffered() > 0 {
		return errUnasked
	}
	return nil
}

// quit says goodbye, for timeout at most.
func (l *link) quit(timeout time.Duration) error {
	l.wire.allowance = maxReplyBytes
	timer := time.AfterFunc(timeout, l.wire.drop)
	defer timer.Stop()
	err := l.client.Quit()
	_ = l.wire.Close()
	return err
}
