package smtpsink

import (
	"fmt"

	"github.com/emersion/go-smtp"
)

// Attempt is one RCPT TO.
type Attempt struct {
	From, To string
	// N counts the attempts for this recipient since the sink started, from 1.
	N int
}

// Behaviour decides what the sink does with an attempt. It is called once for each RCPT TO.
type Behaviour func(Attempt) Action

// Action is what the sink does with one attempt. Its zero value accepts. A mail to several recipients is treated as
// the first of them whose action is not to accept.
type Action struct {
	kind    kind
	reply   *smtp.SMTPError
	release <-chan struct{}
}

type kind int

const (
	accept kind = iota
	refuseRecipient
	refuseData
	hold
	holdAnswer
	drop
	dropAnswer
)

// Accept takes the mail and answers 250.
func Accept() Action { return Action{} }

// Refuse answers RCPT TO with code, as in Refuse(550, "5.1.1", "no such user"). An empty enhanced code leaves it out.
// It panics if the enhanced code is not three numbers: a wrong script is a fault of the program.
func Refuse(code int, enhanced, text string) Action {
	return Action{kind: refuseRecipient, reply: reply(code, enhanced, text)}
}

// RefuseData answers the final dot with code. The mail is not received.
func RefuseData(code int, enhanced, text string) Action {
	return Action{kind: refuseData, reply: reply(code, enhanced, text)}
}

// Hold reads the mail and then waits until release is closed before it takes it and answers 250. If the client goes
// away first, or the sink is closed, the mail is not received.
func Hold(release <-chan struct{}) Action { return Action{kind: hold, release: release} }

// HoldAnswer takes the mail and then waits until release is closed before it answers 250. The mail is received even if
// the client goes away first.
func HoldAnswer(release <-chan struct{}) Action { return Action{kind: holdAnswer, release: release} }

// Drop resets the connection instead of answering the final dot. The mail is not received.
func Drop() Action { return Action{kind: drop} }

// DropAnswer takes the mail and resets the connection instead of answering the final dot. The mail is received.
func DropAnswer() Action { return Action{kind: dropAnswer} }

// Always does the same with every attempt.
func Always(a Action) Behaviour { return func(Attempt) Action { return a } }

// Times does a with the first n attempts for each recipient and then accepts: Times(2, Refuse(451, "4.3.0", "later")).
func Times(n int, a Action) Behaviour {
	return func(at Attempt) Action {
		if at.N <= n {
			return a
		}
		return Accept()
	}
}

// ByRecipient looks up the behaviour by the recipient's address, and accepts who is not in the map. The map must not
// change afterwards.
func ByRecipient(m map[string]Behaviour) Behaviour {
	return func(at Attempt) Action {
		if b, ok := m[at.To]; ok {
			return b(at)
		}
		return Accept()
	}
}

func reply(code int, enhanced, text string) *smtp.SMTPError {
	e := smtp.NoEnhancedCode
	if enhanced != "" {
		if _, err := fmt.Sscanf(enhanced, "%d.%d.%d", &e[0], &e[1], &e[2]); err != nil {
			panic(fmt.Sprintf("smtpsink: enhanced code %q: must be three numbers such as 5.1.1", enhanced))
		}
	}
	return &smtp.SMTPError{Code: code, EnhancedCode: e, Message: text}
}
