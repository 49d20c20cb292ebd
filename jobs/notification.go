package jobs

import (
	"errors"
	"fmt"
	"net/mail"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirqueue/weir/internal/delivery"
)

// Limits of a notification.
const (
	MaxRecipients    = 1000
	MaxAddressBytes  = 320
	MaxSubjectBytes  = 900
	MaxBodyBytes     = 512 << 10 // for Text and HTML, each
	MaxKeyBytes      = 500
	MaxTags          = 20
	MaxMetadataBytes = 16 << 10
	MaxFailuresLimit = 1000
)

// Notification is a message to one or more recipients. Each recipient gets a delivery of its own, which succeeds or
// fails on its own.
type Notification struct {
	To      []Recipient `json:"to"`
	Subject string      `json:"subject"`
	Text    string      `json:"text"`
	// HTML is an alternative to Text, for channels that know it. Empty means none.
	HTML string `json:"html,omitempty"`
}

// Recipient is an address on a channel.
type Recipient struct {
	// Channel is "email", "telegram", or the name of a channel that the fleet was given.
	Channel string `json:"channel"`
	Address string `json:"address"`
}

// Email is a recipient on the channel "email". The address is a plain one, without a display name.
func Email(address string) Recipient { return Recipient{Channel: "email", Address: address} }

// validate reports every fault of n, joined.
func (n *Notification) validate(channels []string) error {
	var faults []error
	if len(n.To) == 0 || len(n.To) > MaxRecipients {
		faults = append(faults, invalid("Notification.To", strconv.Itoa(len(n.To))+" recipients", fmt.Sprintf("from 1 to %d recipients", MaxRecipients)))
	}
	seen := map[Recipient]bool{}
	for i, r := range n.To {
		field := fmt.Sprintf("Notification.To[%d]", i)
		faults = append(faults, r.validate(field, channels))
		if seen[r] {
			faults = append(faults, invalid(field, r.Address, "different from every other recipient"))
		}
		seen[r] = true
	}
	faults = append(faults,
		validateText("Notification.Subject", n.Subject, MaxSubjectBytes),
		validateText("Notification.Text", n.Text, MaxBodyBytes),
		validateText("Notification.HTML", n.HTML, MaxBodyBytes),
		n.validateTelegram())
	if strings.ContainsAny(n.Subject, "\r\n") {
		faults = append(faults, invalid("Notification.Subject", n.Subject, "one line: a line break would forge a header"))
	}
	if strings.TrimSpace(n.Text) == "" && strings.TrimSpace(n.HTML) == "" {
		faults = append(faults, invalid("Notification.Text", n.Text, "not empty where HTML is empty too"))
	}
	return errors.Join(faults...)
}

func (r Recipient) validate(field string, channels []string) error {
	var faults []error
	if !channelName.MatchString(r.Channel) {
		faults = append(faults, invalid(field+".Channel", r.Channel, `a channel's name such as "email"`))
	} else if len(channels) > 0 && !slices.Contains(channels, r.Channel) {
		faults = append(faults, invalid(field+".Channel", r.Channel, "one of "+strings.Join(channels, ", ")))
	}
	field += ".Address"
	if r.Address == "" || len(r.Address) > MaxAddressBytes {
		return errors.Join(append(faults, invalid(field, r.Address, fmt.Sprintf("from 1 to %d bytes", MaxAddressBytes)))...)
	}
	if strings.ContainsFunc(r.Address, func(c rune) bool { return c < ' ' || c == 0x7f || c == utf8.RuneError }) {
		faults = append(faults, invalid(field, r.Address, "free of control characters and invalid UTF-8"))
	} else if r.Channel == "email" {
		faults = append(faults, validateEmail(field, r.Address))
	} else if r.Channel == delivery.Telegram {
		faults = append(faults, validateChat(field, r.Address))
	}
	return errors.Join(faults...)
}

func validateEmail(field, address string) error {
	parsed, err := mail.ParseAddress(address)
	if err != nil || parsed.Name != "" || parsed.Address != address {
		return invalid(field, address, "a plain email address such as ada@example.com")
	}
	if strings.ContainsFunc(address, func(c rune) bool { return c > 0x7e }) {
		return invalid(field, address, "ASCII: write an international domain in its xn-- form")
	}
	if local, _, _ := strings.Cut(address, "@"); len(local) > 64 {
		return invalid(field, address, "at most 64 bytes before the @")
	}
	return nil
}

// validateText refuses what PostgreSQL cannot store, and what is too long.
func validateText(field, s string, limit int) error {
	switch {
	case len(s) > limit:
		return invalid(field, fmt.Sprintf("%d bytes", len(s)), fmt.Sprintf("at most %d bytes", limit))
	case strings.ContainsRune(s, 0):
		return invalid(field, s, "free of NUL bytes")
	case !utf8.ValidString(s):
		return invalid(field, s, "valid UTF-8")
	}
	return nil
}
