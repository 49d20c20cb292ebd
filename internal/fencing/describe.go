package fencing

import (
	"strings"
)

// Events lists every event, in the order of the docs.
func Events() []Event { return append([]Event(nil), events...) }

// Description is what an event does beside the status, in words. The docs are generated from it.
type Description struct {
	Who, Attempt, Lease, Failures, Reaps, Due string
}

// Describe says what an event does to a run, the same for every kind.
func Describe(e Event) Description {
	eff := effects[e]
	d := Description{Who: eff.who, Attempt: "kept", Failures: counter(eff.failures), Reaps: counter(eff.reaps)}
	if eff.fenced {
		d.Attempt = "must match; kept"
	}
	if eff.raisesAttempt {
		d.Attempt = strings.Replace(d.Attempt, "kept", "raised", 1)
	}
	d.Lease = map[ownership]string{
		keeps: "kept", takes: "a full one", renews: "a full one, with the next step's deadline", gives: "none",
	}[eff.owner]
	switch {
	case eff.owner == takes || eff.owner == renews || eff.owner == keeps && eff.due == "":
		d.Due = "–"
	case strings.Contains(eff.due, "@delay"):
		d.Due = "after a delay"
	case eff.due != "":
		d.Due = "at once"
	default:
		d.Due = "never"
	}
	return d
}

func counter(sql string) string {
	switch {
	case sql == "":
		return "kept"
	case sql == "0":
		return "0"
	case strings.Contains(sql, "::int"):
		return "+ 1 if the step's deadline has passed"
	default:
		return "+ 1"
	}
}
