package workers

import (
	"context"
	"encoding/json"
	"time"

	"github.com/google/uuid"
	"github.com/riverqueue/river"
	"github.com/riverqueue/river/rivertype"

	"github.com/weirqueue/weir/internal/fencing"
)

// maxBlockedPause is the longest pause between two looks at a run that nobody here can work.
const maxBlockedPause = 30 * time.Second

// block leaves a run to a process that has what it needs: the reason is noted on the run, no budget is burnt, and the
// doorbell comes back after a growing pause, so that a capable process gets it.
func (s *Service) block(ctx context.Context, job *rivertype.JobRow, run uuid.UUID, reason string) error {
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	if err := fencing.Block(ctx, s.pool, run, reason); err != nil {
		dropReadOnly(s.pool, err)
		s.log.WarnContext(ctx, "weir: why a run is blocked could not be noted", "run", run, "error", err)
	}
	var metadata struct {
		Snoozes int `json:"snoozes"`
	}
	_ = json.Unmarshal(job.Metadata, &metadata) // River's own; without it the pause is the shortest
	pause := time.Second << min(metadata.Snoozes, 10)
	return river.JobSnooze(jitter(min(pause, maxBlockedPause)))
}
