package jobs

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Opts are options of an enqueue. Those that River's InsertOpts has keep their names. The zero value, and nil, mean the
// defaults. Runs are never unique by their arguments; see IdempotencyKey.
type Opts struct {
	// IdempotencyKey makes the enqueue repeatable: the same key with the same payload answers with the runs that are
	// there, another payload is a *KeyReusedError. It answers as long as the run exists, and 30 days from its end.
	// At most 500 bytes of UTF-8. A key that is given must not be blank; empty means none.
	IdempotencyKey string
	// ExclusiveKey allows one live run of the kind with this key at a time; a second one is an *ExclusiveError. For runs of
	// an application's own kinds. At most 500 bytes of UTF-8. Empty means none.
	ExclusiveKey string
	// MaxAttempts is how many failed tries there may be. It is Weir's budget, not River's: snoozes and releases
	// at a shutdown do not count. An owner that vanished counts only where its step's declared time had passed when its
	// lease was ended: then nobody can tell a hung step from a dead process. Defaults to the kind's own, 8 for
	// deliveries.
	MaxAttempts int
	// Metadata is a JSON object that is stored with the run. Weir never reads it.
	Metadata []byte
	// Priority is from 1, the first, to 4. Defaults to 1.
	Priority int
	// Queue is the River queue. Defaults to the client's queue for the kind.
	Queue string
	// ScheduledAt is when the run is due. Zero is now, by the database's clock.
	ScheduledAt time.Time
	// Tags are for finding runs and jobs: at most 20, each of 3 to 255 letters, digits, _ and -.
	Tags []string
}

var tagName = regexp.MustCompile(`\A[\w][\w\-]+[\w]\z`) // River's own rule

func (o *Opts) withDefaults(queue string, maxFailures int) *Opts {
	out := Opts{}
	if o != nil {
		out = *o
	}
	if out.MaxAttempts == 0 {
		out.MaxAttempts = maxFailures
	}
	if out.Priority == 0 {
		out.Priority = 1
	}
	if out.Queue == "" {
		out.Queue = queue
	}
	if len(out.Metadata) == 0 {
		out.Metadata = []byte("{}")
	}
	out.Tags = slices.Clone(out.Tags)
	if out.Tags == nil {
		out.Tags = []string{}
	}
	return &out
}

func (o *Opts) validate() error {
	var faults []error
	if o.IdempotencyKey != "" {
		if err := validateText("Opts.IdempotencyKey", o.IdempotencyKey, MaxKeyBytes); err != nil {
			faults = append(faults, err)
		} else if blank.MatchString(o.IdempotencyKey) {
			faults = append(faults, invalid("Opts.IdempotencyKey", o.IdempotencyKey, "not blank; empty means none"))
		}
	}
	faults = append(faults, validateText("Opts.ExclusiveKey", o.ExclusiveKey, MaxKeyBytes))
	if o.MaxAttempts < 1 || o.MaxAttempts > MaxFailuresLimit {
		faults = append(faults, invalid("Opts.MaxAttempts", strconv.Itoa(o.MaxAttempts), fmt.Sprintf("from 1 to %d, or 0 for the default", MaxFailuresLimit)))
	}
	if o.Priority < 1 || o.Priority > 4 {
		faults = append(faults, invalid("Opts.Priority", strconv.Itoa(o.Priority), "from 1 to 4, or 0 for 1"))
	}
	faults = append(faults, validateQueue("Opts.Queue", o.Queue), o.validateMetadata())
	if y := o.ScheduledAt.Year(); !o.ScheduledAt.IsZero() && (y < 2000 || y > 9999) {
		faults = append(faults, invalid("Opts.ScheduledAt", o.ScheduledAt.String(), "between the years 2000 and 9999"))
	}
	if len(o.Tags) > MaxTags {
		faults = append(faults, invalid("Opts.Tags", strconv.Itoa(len(o.Tags))+" tags", fmt.Sprintf("at most %d tags", MaxTags)))
	}
	for i, tag := range o.Tags {
		if len(tag) > 255 || !tagName.MatchString(tag) {
			faults = append(faults, invalid(fmt.Sprintf("Opts.Tags[%d]", i), tag, "3 to 255 letters, digits, _ and -, not beginning or ending in -"))
		}
	}
	return errors.Join(faults...)
}

var (
	blank     = regexp.MustCompile(`^\s*$`)
	nulEscape = regexp.MustCompile(`(?i)\\u0000|\\ud[89a-f]`)
)

func (o *Opts) validateMetadata() error {
	const bound = "a JSON object that PostgreSQL can store"
	trimmed := bytes.TrimSpace(o.Metadata)
	if len(trimmed) > MaxMetadataBytes {
		return invalid("Opts.Metadata", fmt.Sprintf("%d bytes", len(trimmed)), fmt.Sprintf("at most %d bytes", MaxMetadataBytes))
	}
	// jsonb takes neither \u0000 nor half a surrogate pair. Whole pairs are refused with them: write the character.
	if !json.Valid(trimmed) || trimmed[0] != '{' || nulEscape.Match(trimmed) || bytes.ContainsRune(trimmed, 0) {
		return invalid("Opts.Metadata", string(o.Metadata), bound)
	}
	if n := unstorableNumber(trimmed); n != "" {
		return invalid("Opts.Metadata", n, bound+"; it has no number this large or small")
	}
	return validateText("Opts.Metadata", string(trimmed), MaxMetadataBytes)
}

// unstorableNumber returns a number in valid JSON that jsonb, whose numbers are PostgreSQL's numeric, would refuse.
func unstorableNumber(text []byte) string {
	const maxExponent = 1000
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return ""
		}
		n, ok := token.(json.Number)
		if !ok {
			continue
		}
		if _, exponent, ok := strings.Cut(strings.ToLower(n.String()), "e"); ok {
			if e, err := strconv.Atoi(exponent); err != nil || e > maxExponent || e < -maxExponent {
				return n.String()
			}
		}
	}
}
