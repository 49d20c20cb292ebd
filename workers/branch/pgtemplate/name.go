package pgtemplate

import (
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/workers/branch"
)

// maxName is what PostgreSQL keeps of a name, in bytes: a longer one is cut, silently, to another's.
const maxName = 63

// A database that is on its way in or out is named after the run and the attempt that made it, and after the branch. It
// is never derived from the branch's own name, which may be as long as a name can be.
const (
	suffixNew = "_new"
	suffixOld = "_old"
)

var ours = regexp.MustCompile(`^weir_[0-9a-v]{26}_[0-9a-z]{1,13}_[0-9a-f]{8}_(new|old)$`)

var lower32 = base32.HexEncoding.WithPadding(base32.NoPadding)

// beside names a database for this run and attempt. It is at most 58 bytes long.
func beside(r branch.Reset, suffix string) (string, error) {
	id, err := uuid.Parse(r.RunID)
	if err != nil {
		return "", fmt.Errorf("run id: %w", err)
	}
	return "weir_" + strings.ToLower(lower32.EncodeToString(id[:])) + "_" + strconv.FormatInt(r.Attempt, 36) + "_" + hashOf(r.Target) + suffix, nil
}

func hashOf(target string) string {
	sum := sha256.Sum256([]byte(target))
	return hex.EncodeToString(sum[:4])
}

// isLeftoverOf reports that a database was made by a reset of the branch, by its name and by its mark where it has one.
func isLeftoverOf(target, name string, m mark) bool {
	return ours.MatchString(name) && strings.Contains(name, "_"+hashOf(target)+"_") && (m.Branch == "" || m.Branch == target)
}

// mark is the comment of a database that a reset has made.
type mark struct {
	Branch  string `json:"weir_branch"`
	Run     string `json:"run"`
	Attempt int64  `json:"attempt"`
}

func markOf(r branch.Reset) mark { return mark{Branch: r.Target, Run: r.RunID, Attempt: r.Attempt} }

func (m mark) text() string {
	b, _ := json.Marshal(m) // strings and a number
	return string(b)
}

// readMark reads a comment. Somebody else's is no mark.
func readMark(comment string) (m mark) {
	if json.Unmarshal([]byte(comment), &m) != nil {
		return mark{}
	}
	return m
}

// check refuses what must never be touched, before anything is.
func (p *Provider) check(r branch.Reset) error {
	switch {
	case r.Target == "" || len(r.Target) > maxName || strings.ContainsRune(r.Target, 0):
		return branch.Refused("bad_name", fmt.Errorf("the branch's database has a name of %d bytes: must be from 1 to %d", len(r.Target), maxName))
	case r.Parent == "" || len(r.Parent) > maxName || strings.ContainsRune(r.Parent, 0):
		return branch.Refused("bad_name", fmt.Errorf("the parent's database has a name of %d bytes: must be from 1 to %d", len(r.Parent), maxName))
	case r.Parent == r.Target:
		return branch.Refused("own_parent", errors.New("a branch is not its own parent"))
	case r.PointInTime != nil:
		return branch.Refused("no_past", errors.New("pgtemplate has no past to reset to"))
	case slices.Contains(p.protected, r.Target) || ours.MatchString(r.Target):
		return branch.Refused("protected", fmt.Errorf("the database %q is never reset", r.Target))
	}
	return nil
}

func quote(name string) string { return pgx.Identifier{name}.Sanitize() }

func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }
