package fencing

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

const (
	rollbackTimeout = 5 * time.Second
	// suspectReaps is from how many reaps on a run is claimed only by a process that runs no other suspect (R2).
	suspectReaps = 2
)

// ClaimScope picks the run that a claim wants. A claim never takes over a lease, not even one that has run out: only
// the reaper ends it (R2).
const ClaimScope = `r.id = @run and r.kind = @kind and r.next_attempt_at <= clock_timestamp()
      and r.lease_expires_at is null and (r.reaps < 2 or @suspect::boolean) and r.needs <@ @offers::text[]`

// ClaimFinal is what a claim returns; see Claimed. Each payload is looked up by its run: a join of a batch with the table
// read the whole table. manySteps and before are SQL over fenced for what Claimed has by these names.
func ClaimFinal(manySteps, before string) string {
	return `select fenced.id, fenced.attempt, fenced.reaps, fenced.failures, fenced.created_at, ` + manySteps + `,
    p.body, p.digest, clock_timestamp(), ` + before + `
from fenced left join lateral (select body, digest from weir.payload where run_id = fenced.id offset 0) p on true`
}

// ClaimRequest says who claims what.
type ClaimRequest struct {
	Run   uuid.UUID
	Kind  string
	Owner string
	// Doorbell is the River job that rang, with when River started this try of it: together they name one try.
	Doorbell            int64
	DoorbellAttemptedAt time.Time
	Lease, StepTime     time.Duration
	// Suspect says that this process runs no other suspect.
	Suspect bool
	// Offers is what this process has of what runs need. A run that needs more is left to others.
	Offers []string
}

// Args are the request as parameters of a claim statement.
func (c ClaimRequest) Args() Args {
	return Args{
		"run": c.Run, "kind": c.Kind, "owner": c.Owner, "doorbell": c.Doorbell,
		"doorbell_attempted_at": c.DoorbellAttemptedAt, "lease": c.Lease, "step_time": c.StepTime, "suspect": c.Suspect,
		"offers": append([]string{}, c.Offers...), // never NULL, which would match nothing
	}
}

// Claimed is a run that this process owns now.
type Claimed struct {
	Run             uuid.UUID
	Kind            string
	Status          Status
	Attempt         int64
	Reaps, Failures int
	CreatedAt       time.Time
	// ManySteps says that the run needs a worker that takes it step by step.
	ManySteps bool
	// Payload is nil when it was erased or is missing.
	Payload, Digest []byte
	// Now is the database's clock at the claim.
	Now time.Time
	// Before is the outcome of the step that the claim started, as an earlier try left it; empty on the first.
	Before string
}

// IsSuspect reports a run that was reaped so often that it may be what kills its processes.
func (c Claimed) IsSuspect() bool { return c.Reaps >= suspectReaps }

// ScanClaimed reads the row of ClaimFinal, of a run of kind. ok is false when the claim matched no row: a lost race, not an error.
func ScanClaimed(row pgx.Row, kind string) (c Claimed, ok bool, err error) {
	c.Kind, c.Status = kind, MachineOf(kind).Ownable[0] // what every claim leads to
	err = row.Scan(&c.Run, &c.Attempt, &c.Reaps, &c.Failures, &c.CreatedAt, &c.ManySteps, &c.Payload, &c.Digest, &c.Now, &c.Before)
	if errors.Is(err, pgx.ErrNoRows) {
		return Claimed{}, false, nil
	}
	return c, err == nil, err
}

// Reason is why a run could not be claimed.
type Reason int

const (
	// Unknown run: it was cleaned away, or never committed.
	ReasonUnknown Reason = iota
	// ReasonTerminal: it answers from its receipts.
	ReasonTerminal
	// ReasonOwned: a live owner, or the reaper, goes on with it.
	ReasonOwned
	// ReasonNotDue: see Standing.DueIn.
	ReasonNotDue
	// ReasonSuspect: it is due, and waits for a process that runs no other suspect.
	ReasonSuspect
	// ReasonWaits: it waits for a person.
	ReasonWaits
	// ReasonBlocked: this process lacks something that it needs; see Standing.Lacks.
	ReasonBlocked
	// ReasonRaced: it could have been claimed; somebody was there first.
	ReasonRaced
)

// Standing is how a run stands that was not claimed.
type Standing struct {
	Reason Reason
	Status Status
	// DueIn is what is left until the run is due, by the database's clock.
	DueIn time.Duration
	// Lacks is what the run needs and the process does not offer.
	Lacks []string
}

var standing = Compile("standing", `
select kind, status, finished_at is not null, lease_expires_at is not null, next_attempt_at is null, reaps,
    case when next_attempt_at < 'infinity' then extract(epoch from next_attempt_at - clock_timestamp())::float8 else 0 end,
    array(select unnest(needs) except select unnest(@offers::text[]))
from weir.run where id = @run`)

// StandingOf says why run cannot be claimed now, by a process that offers what is given.
func StandingOf(ctx context.Context, db DB, run uuid.UUID, offers ...string) (Standing, error) {
	var (
		kind, status           string
		terminal, owned, waits bool
		reaps                  int
		dueIn                  float64
		lacks                  []string
	)
	err := db.QueryRow(ctx, standing.SQL, standing.Bind(Args{"run": run, "offers": append([]string{}, offers...)})...).
		Scan(&kind, &status, &terminal, &owned, &waits, &reaps, &dueIn, &lacks)
	if errors.Is(err, pgx.ErrNoRows) {
		return Standing{Reason: ReasonUnknown}, nil
	}
	if err != nil {
		return Standing{}, fmt.Errorf("look at run %s: %w", run, err)
	}
	s := Standing{Status: Status(status), Reason: ReasonRaced}
	switch {
	case terminal:
		s.Reason = ReasonTerminal
	case owned:
		s.Reason = ReasonOwned
	case waits:
		s.Reason = ReasonWaits
	case dueIn > 0:
		s.Reason, s.DueIn = ReasonNotDue, time.Duration(dueIn*float64(time.Second))
	case len(lacks) > 0:
		s.Reason, s.Lacks = ReasonBlocked, lacks
	case reaps >= suspectReaps:
		s.Reason = ReasonSuspect
	}
	return s, nil
}
