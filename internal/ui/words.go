package ui

import (
	"bytes"
	"encoding/json"
	"fmt"
	"html/template"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/weirqueue/weir/jobs"
)

// words are what templates say things with.
var words = template.FuncMap{
	"visible":    visible,
	"pretty":     pretty,
	"stamp":      func(t time.Time) string { return t.UTC().Format("2006-01-02 15:04:05") },
	"machine":    func(t time.Time) string { return t.UTC().Format(time.RFC3339Nano) },
	"relative":   relative,
	"tone":       tone,
	"means":      effectMeans,
	"doubt":      doubt,
	"effectName": func(effect string) string { return strings.ReplaceAll(effect, "_", " ") },
	"standing":   standing,
	"kindName":   kindName,
	"typeName":   typeName,
	"lower":      strings.ToLower,
}

// visible shows what a provider or a caller wrote: characters that change how the text around them reads, such as
// control and bidirectional ones, become escapes that can be seen.
func visible(s string) string {
	var b strings.Builder
	for len(s) > 0 {
		r, size := utf8.DecodeRuneInString(s)
		switch {
		case r == utf8.RuneError && size == 1:
			fmt.Fprintf(&b, `\x%02x`, s[0])
		case r == '\n', unicode.IsPrint(r) && !isUnseen(r):
			b.WriteRune(r)
		case r == '\t':
			b.WriteByte(' ')
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		s = s[size:]
	}
	return b.String()
}

// isUnseen reports letters and marks that are drawn as nothing.
func isUnseen(r rune) bool {
	const braillePatternBlank = 0x2800
	return r == braillePatternBlank || unicode.In(r, unicode.Other_Default_Ignorable_Code_Point, unicode.Variation_Selector)
}

// pretty indents JSON for reading.
func pretty(raw json.RawMessage) string {
	var b bytes.Buffer
	if err := json.Indent(&b, raw, "", "  "); err != nil {
		return visible(string(raw))
	}
	return visible(b.String())
}

// relative says how far t is from now, in one unit: "12 s ago", "in 3 min".
func relative(now, t time.Time) string {
	d := t.Sub(now)
	if d < 0 {
		return span(-d) + " ago"
	}
	return "in " + span(d)
}

func span(d time.Duration) string {
	switch {
	case d < time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	}
	return fmt.Sprintf("%d days", d/(24*time.Hour))
}

// tone picks the colour of a status, outcome or ending. The word beside it says the same.
func tone(word string) string {
	switch word {
	case "sent", "executed", "succeeded", "finished", "ok":
		return "good"
	case "failed", "dead", "expired", "rejected", "high":
		return "bad"
	case "unknown", "reaped", "medium":
		return "doubt"
	case "processing", "running", "executing", "scheduling", "started":
		return "busy"
	}
	return "quiet"
}

// effectMeans says what an effect promises when nobody knows its outcome.
func effectMeans(effect string) string {
	switch effect {
	case "transactional":
		return "commits together with this receipt, so it cannot stay unknown"
	case "idempotent":
		return "if its outcome is unknown, it is asked for again with the same key and counts once"
	case "at_least_once":
		return "if its outcome is unknown, it is done again; a duplicate is accepted"
	case "reconciled":
		return "if its outcome is unknown, the provider is asked before anything is done again"
	}
	return ""
}

// doubt says what an outcome leaves open for this run. Empty where nothing is open.
func doubt(run *jobs.Run, receipt jobs.Receipt) string {
	happened, again := "may have taken effect", "is done again"
	if run.Kind == jobs.KindDelivery {
		happened, again = "may have been delivered", "is sent again"
	}
	switch receipt.Outcome {
	case "started":
		if !run.Terminal() {
			return "under way"
		}
	case "unknown":
	default:
		return ""
	}
	switch {
	case run.Terminal():
		return happened + "; the run has ended, so it is not tried again"
	case receipt.Effect == "at_least_once":
		return happened + "; " + again
	case receipt.Effect == "idempotent":
		return happened + "; " + again + " with the same key, and counts once"
	case receipt.Effect == "reconciled":
		return happened + "; the provider is asked what happened"
	}
	return "is looked up before the run goes on"
}

func kindName(kind string) string {
	return strings.ReplaceAll(visible(kind), "_", " ")
}

// pastOf is the participle of an operation, for sentences.
func pastOf(op string) string {
	switch op {
	case "cancel":
		return "canceled"
	case "redrive":
		return "redriven"
	case "erase":
		return "erased"
	case "approve":
		return "approved"
	case "reject":
		return "rejected"
	case "compensate":
		return "undone"
	}
	return "changed"
}
