package pgtest

import (
	"context"

	"github.com/weirqueue/weir/internal/postgres"
)

// Place is a test process's place in a cluster.
type Place struct{ *process }

// Join takes a place in a cluster, as the first test of a process does in the shared one.
func Join(ctx context.Context, server *postgres.Server) (Place, error) {
	p := newProcess(server)
	return Place{p}, p.register(ctx)
}

// Leave is what the end of the process does.
func (p Place) Leave() error { return p.held.Close() }

// Create makes a migrated database.
func (p Place) Create(ctx context.Context, test string) (string, error) {
	return p.create(ctx, test, true)
}

// CheckMajor is what each test process asks its server when MajorVariable is set.
var CheckMajor = checkMajor
