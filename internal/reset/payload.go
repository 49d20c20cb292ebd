// Package reset holds what enqueuers and workers share about branch resets: the frozen payload, the steps, and what
// their providers said of the operations.
package reset

import (
	"encoding/json"
	"fmt"
	"time"

	"github.com/weirqueue/weir/internal/fencing"
	"github.com/weirqueue/weir/internal/operation"
	"github.com/weirqueue/weir/internal/receipts"
)

// Kind is the kind of branch resets.
const Kind = fencing.KindBranchReset

// Payload is what a reset does, frozen when it was asked for: what the register says later changes nothing of it.
type Payload struct {
	Branch      string     `json:"branch"`
	Provider    string     `json:"provider"`
	Project     string     `json:"project,omitempty"`
	Target      string     `json:"target"`
	Parent      string     `json:"parent,omitempty"`
	PointInTime *time.Time `json:"point_in_time,omitempty"`
}

// The steps of every reset: the one call that must not happen twice, and the look at what became of it.
var (
	Issue = receipts.Step{Index: 0, Name: "issue", Effect: receipts.Reconciled}
	Await = receipts.Step{Index: 1, Name: "await", Effect: receipts.Idempotent}
)

// Need is what a worker must offer to claim resets at a provider.
func Need(provider string) string { return "branch:" + provider }

// Encode returns the payload's canonical bytes and their digest.
func (p Payload) Encode() (body, digest []byte, err error) {
	raw, err := json.Marshal(p)
	if err != nil {
		return nil, nil, err
	}
	return operation.Frozen{Kind: Kind, Steps: []operation.Step{
		{Name: Issue.Name, Effect: string(Issue.Effect)}, {Name: Await.Name, Effect: string(Await.Effect)},
	}, Payload: raw}.Encode()
}

// Decode reads a frozen payload and checks it against its digest.
func Decode(body, digest []byte) (Payload, error) {
	var p Payload
	frozen, err := operation.Decode(body, digest)
	if err != nil {
		return p, err
	}
	if frozen.Kind != Kind {
		return p, fmt.Errorf("the payload is of kind %s", frozen.Kind)
	}
	if err := json.Unmarshal(frozen.Payload, &p); err != nil {
		return p, fmt.Errorf("the payload is not a branch reset: %w", err)
	}
	return p, nil
}
