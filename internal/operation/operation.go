// Package operation holds what enqueuers and workers share about runs of an application's own kinds: the frozen list of
// steps and the payload.
package operation

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"

	"github.com/weirqueue/weir/internal/delivery"
)

// Step is a step as it was when the run was enqueued.
type Step struct {
	Name   string `json:"name"`
	Effect string `json:"effect"`
}

// Frozen is the payload of a run: the steps by name and effect, and what the application asked for. The order of its
// fields is part of its canonical form.
type Frozen struct {
	Kind    string          `json:"kind"`
	Steps   []Step          `json:"steps"`
	Payload json.RawMessage `json:"payload"`
}

// Encode returns the canonical bytes and their digest.
func (f Frozen) Encode() (body, digest []byte, err error) {
	body, err = delivery.Canonical(f)
	if err != nil {
		return nil, nil, err
	}
	return body, delivery.Digest(body), nil
}

// Decode reads a frozen payload and checks it against its digest.
func Decode(body, digest []byte) (Frozen, error) {
	var f Frozen
	if body == nil {
		return f, fmt.Errorf("the payload is missing or was erased")
	}
	if !bytes.Equal(delivery.Digest(body), digest) {
		return f, fmt.Errorf("the payload does not match its digest")
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return f, fmt.Errorf("the payload is not a list of steps: %w", err)
	}
	return f, nil
}

// Need is what a worker must offer to claim a run with these steps: exactly this list, so that a process of another
// version leaves it to others instead of failing it.
func Need(kind string, steps []Step) string {
	h := sha256.New()
	for _, s := range steps {
		fmt.Fprintf(h, "%d:%s,%d:%s;", len(s.Name), s.Name, len(s.Effect), s.Effect)
	}
	return "steps:" + kind + ":" + hex.EncodeToString(h.Sum(nil)[:8])
}
