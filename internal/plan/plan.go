// Package plan holds what proposers, approvers and workers share about approved plans: the frozen list of tool calls.
package plan

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
)

// Kind is the Weir kind of a plan.
const Kind = "plan"

// Step is one call of a tool. The order of its fields is part of its canonical form.
type Step struct {
	Tool      string          `json:"tool"`
	Effect    string          `json:"effect"`
	Args      json.RawMessage `json:"args"`
	Rationale string          `json:"rationale,omitempty"`
	// Need is the declaration of the tool that the arguments were checked against; see Need.
	Need string `json:"need"`
}

// Frozen is what is approved: these bytes and no others. The order of its fields is part of its canonical form.
type Frozen struct {
	Kind      string `json:"kind"`
	Title     string `json:"title"`
	Rationale string `json:"rationale"`
	Risk      string `json:"risk"`
	Owner     string `json:"owner"`
	Resume    bool   `json:"resume"`
	Steps     []Step `json:"steps"`
}

// Encode returns the canonical bytes and their digest.
func (f Frozen) Encode() (body, digest []byte, err error) {
	f.Kind = Kind
	body, err = encode(f)
	if err != nil {
		return nil, nil, fmt.Errorf("encode plan: %w", err)
	}
	return body, Digest(body), nil
}

// Digest is the SHA-256 of canonical bytes.
func Digest(body []byte) []byte {
	sum := sha256.Sum256(body)
	return sum[:]
}

// ErrDigest says that the bytes are not those that the digest was made of.
var ErrDigest = errors.New("the plan does not match its digest")

// Decode reads a frozen plan and checks it against a digest.
func Decode(body, digest []byte) (Frozen, error) {
	var f Frozen
	if body == nil {
		return f, errors.New("the plan's payload is missing or was erased")
	}
	if !bytes.Equal(Digest(body), digest) {
		return f, ErrDigest
	}
	if err := json.Unmarshal(body, &f); err != nil {
		return f, fmt.Errorf("the payload is not a plan: %w", err)
	}
	if f.Kind != Kind || len(f.Steps) == 0 {
		return f, errors.New("the payload is not a plan")
	}
	return f, nil
}

// Need is what a worker must offer to carry out calls of a tool: exactly this declaration. A worker that has another one,
// or none, leaves the plan to others.
func Need(tool, effect string, schema []byte) string {
	h := sha256.New()
	fmt.Fprintf(h, "%d:%s,%s,", len(tool), tool, effect)
	h.Write(schema)
	return "tool:" + tool + ":" + hex.EncodeToString(h.Sum(nil)[:8])
}
