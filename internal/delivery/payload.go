// Package delivery holds what enqueuers and workers share about notification deliveries: the frozen payload.
package delivery

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"fmt"

	"github.com/weirqueue/weir/internal/receipts"
)

const (
	// Kind is the Weir kind of a delivery.
	Kind = "delivery"
	// MaxFailures is the default budget.
	MaxFailures = 8
)

// Need is what a worker must offer to claim a delivery on a channel.
func Need(channel string) string { return "channel:" + channel }

// Needs is everything that a worker must offer to claim a delivery of so many parts. One that knows no parts would send
// the wrong text, so it must not claim it.
func Needs(channel string, parts int) []string {
	if parts < 2 {
		return []string{Need(channel)}
	}
	return []string{Need(channel), receipts.ManySteps}
}

// Payload is what one delivery sends, and to whom. The order of its fields is part of its canonical form.
type Payload struct {
	Notification string `json:"notification"` // its id; no worker reads it
	Channel      string `json:"channel"`
	Address      string `json:"address"`
	Subject      string `json:"subject"`
	Text         string `json:"text"`
	HTML         string `json:"html,omitempty"`
	// Parts are the messages that this one is sent as, each a step, where it is longer than the channel takes. They hold
	// the subject and the text; Text is empty then. A message that fits has none.
	Parts []string `json:"parts,omitempty"`
}

// Canonical encodes v as the bytes that are frozen and digested: JSON without insignificant space and without
// HTML escapes. The same value always gives the same bytes.
func Canonical(v any) ([]byte, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, fmt.Errorf("encode payload: %w", err)
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}

// Digest is the SHA-256 of canonical bytes.
func Digest(body []byte) []byte {
	sum := sha256.Sum256(body)
	return sum[:]
}

// Decode reads a frozen payload and checks it against its digest.
func Decode(body, digest []byte) (Payload, error) {
	var p Payload
	if body == nil {
		return p, fmt.Errorf("the payload is missing or was erased")
	}
	if !bytes.Equal(Digest(body), digest) {
		return p, fmt.Errorf("the payload does not match its digest")
	}
	if err := json.Unmarshal(body, &p); err != nil {
		return p, fmt.Errorf("the payload is not a delivery: %w", err)
	}
	return p, nil
}
