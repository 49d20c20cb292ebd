// Package pgtemplate resets branches that are plain databases of one PostgreSQL server, each made from a template
// database, its parent.
//
// A reset copies the parent into a new database beside the branch, cuts off who is connected to the branch, and swaps the
// two by renaming them, in one transaction: at every moment the branch is as before or reset. The old database is dropped
// afterwards. A mark in the branch's comment, written by the same transaction, says which run did it.
//
// All of that goes over one connection, which holds an advisory lock for the branch. Whoever takes over a run ends that
// connection and gets the lock before it looks: what a process does that was frozen meanwhile, it does on a connection
// that is gone. A process that comes late to the lock asks Weir's database whether the run is still its own.
//
// The connection must be direct, and lead to the same database of the server in every process: advisory locks belong to
// a database and a session. The role owns the branches, and may create databases.
//
// A copy carries what is in the parent; grants on the database itself and ALTER DATABASE … SET are the server's and are
// not carried. The owner is the branch's as before.
package pgtemplate

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// ErrInvalidConfig is what every fault of a Config matches.
var ErrInvalidConfig = errors.New("pgtemplate: invalid configuration")

// Config says where the branches are.
type Config struct {
	// URL leads to a database of the server that is no branch, such as postgres. Required. It is never shown.
	URL string
	// Protected are databases that are never touched as a branch: name the one that Weir lives in, where it is on this
	// server. postgres, the templates and the one of URL always are.
	Protected []string
	// EvictTemplate cuts off who is connected to the parent, so that it can be copied. Without it a reset waits until
	// nobody is, up to its limit.
	EvictTemplate bool
	// Patience is for how long a reset tries to get connections out of its way before it gives up for now. Defaults to
	// 10 s; 100 ms to 10 min. Keep it below half of the step time.
	Patience time.Duration
}

func (c Config) withDefaults() Config {
	c.Patience = cmp.Or(c.Patience, 10*time.Second)
	return c
}

func (c Config) validate() error {
	var faults []error
	if c.URL == "" {
		faults = append(faults, fmt.Errorf(`%w: Config.URL = "": must be a PostgreSQL URL such as postgres://user@host/postgres`, ErrInvalidConfig))
	} else if _, err := pgx.ParseConfig(c.URL); err != nil {
		faults = append(faults, fmt.Errorf("%w: Config.URL = (not shown): must be a PostgreSQL URL such as postgres://user@host/postgres", ErrInvalidConfig))
	}
	if c.Patience < 100*time.Millisecond || c.Patience > 10*time.Minute {
		faults = append(faults, fmt.Errorf("%w: Config.Patience = %s: must be from 100ms to 10m", ErrInvalidConfig, c.Patience))
	}
	return errors.Join(faults...)
}
