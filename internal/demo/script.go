package demo

import (
	"sync"

	"github.com/weirqueue/weir/internal/smtpsink"
	"github.com/weirqueue/weir/jobs"
)

// letter is one delivery of the demo and what must become of it.
type letter struct {
	title   string
	to      string
	subject string
	text    string
	opts    *jobs.Opts
	want    jobs.Status
	// mails is how many mails the server must have taken for it.
	mails int
}

const (
	retriedTo = "retried@example.com"
	deadTo    = "dead@example.com"
	killedTo  = "killed@example.com"
)

var letters = []letter{
	{title: "sent at once", to: "ada@example.com", subject: "Your order", text: "It is on its way.\n.\nA line with one dot is above.", want: jobs.StatusSent, mails: 1},
	{title: "sent at once", to: "grace@example.com", subject: "Grüße aus der Flotte", text: "Zwei Häfen, ein Wehr.", want: jobs.StatusSent, mails: 1},
	{title: "refused once for now (451), then sent", to: retriedTo, subject: "Second time lucky", text: "The first try is refused.", want: jobs.StatusSent, mails: 1},
	{title: "refused for now (451) every time: dead", to: deadTo, subject: "Never", text: "Nobody takes this.", opts: &jobs.Opts{MaxAttempts: 3}, want: jobs.StatusDead},
}

var killed = letter{title: "its worker is killed in mid-delivery", to: killedTo, subject: "Taken over", text: "Two workers worked on this, one at a time.", want: jobs.StatusSent, mails: 1}

// script is what the demo's mail server does.
type script struct {
	never chan struct{}
	once  sync.Once
	// holding is closed when the server holds the mail whose worker is to be killed.
	holding chan struct{}
}

func newScript() *script {
	return &script{never: make(chan struct{}), holding: make(chan struct{})}
}

func (s *script) behave(a smtpsink.Attempt) smtpsink.Action {
	switch {
	case a.To == retriedTo && a.N == 1, a.To == deadTo:
		return smtpsink.Refuse(451, "4.3.0", "come back later")
	case a.To == killedTo && a.N == 1:
		s.once.Do(func() { close(s.holding) })
		return smtpsink.Hold(s.never)
	}
	return smtpsink.Accept()
}
