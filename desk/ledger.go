package desk

import (
	"context"
	"log/slog"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
)

// How long the ledger answers for a save: while both hold, it may go.
const (
	// LedgerAge is the least age of a save that is forgotten.
	LedgerAge = 30 * 24 * time.Hour
	// LedgerSaves is how many of the last saves of a file are kept whatever their age.
	LedgerSaves = 200
)

var findSave = compile("find save", `
select s.version, f.version from desk.file f left join desk.save s on s.file_id = f.id and s.save_id = @save::text
where f.id = @id::text and f.owner = @owner::text`)

// FindSave says which version a save made, and the stored one. It answers for a deleted file too. The error is
// ErrNotFound or ErrUnknownSave; the latter means that the save was not committed, or long ago, and may still be on its
// way.
func (s *Store) FindSave(ctx context.Context, owner Owner, file FileID, id SaveID) (version, current int64, err error) {
	if !fileID.MatchString(string(file)) || owner.validate() != nil {
		return 0, 0, ErrNotFound
	}
	if !token.MatchString(string(id)) {
		id = "" // no save has it, but the file is still to be found or not
	}
	var made *int64
	found, err := first(ctx, s.pool, findSave, args{"save": id, "id": file, "owner": owner}, &made, &current)
	switch {
	case err != nil:
		return 0, 0, err
	case !found:
		return 0, 0, ErrNotFound
	case made == nil:
		return 0, 0, ErrUnknownSave
	}
	return *made, current, nil
}

const prunePage = 500

var filesToPrune = compile("files to prune", `
select f.id from desk.file f where f.id > @after::text and f.version > @keep::bigint order by f.id limit @limit::integer`)

var pruneLedger = compile("prune ledger", `
delete from desk.save s using desk.file f
where f.id = any(@files::text[]) and s.file_id = f.id and s.version <= f.version - @keep::bigint
    and s.created_at < clock_timestamp() - @age::interval
returning s.version`)

// Prune forgets saves that are older than LedgerAge and not among the last LedgerSaves of their file, and returns how
// many. It is safe while files are saved, and when several processes prune.
func (s *Store) Prune(ctx context.Context) (int, error) {
	return s.prune(ctx, prunePage)
}

func (s *Store) prune(ctx context.Context, page int) (pruned int, err error) {
	for after := ""; ; {
		files, err := column[string](ctx, s.pool, filesToPrune, args{"after": after, "keep": LedgerSaves, "limit": page})
		if err != nil || len(files) == 0 {
			return pruned, err
		}
		gone, err := column[int64](ctx, s.pool, pruneLedger, args{"files": files, "keep": LedgerSaves, "age": LedgerAge})
		if err != nil {
			return pruned, err
		}
		pruned += len(gone)
		after = files[len(files)-1]
	}
}

// pruneEvery is how often Keep prunes; the first time comes within that.
const pruneEvery = 6 * time.Hour

// Keep prunes the ledger now and then until ctx ends. One process that does so is enough, and none is no danger: the
// ledger only grows. Faults are logged; a nil logger is slog.Default().
func (s *Store) Keep(ctx context.Context, logger *slog.Logger) {
	if logger == nil {
		logger = slog.Default()
	}
	timer := time.NewTimer(rand.N(pruneEvery))
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
		}
		if n, err := s.Prune(ctx); err != nil && ctx.Err() == nil {
			logger.WarnContext(ctx, "Desk: the ledger was not pruned", "error", err)
		} else if n > 0 {
			logger.InfoContext(ctx, "Desk: pruned the ledger", "saves", n)
		}
		timer.Reset(pruneEvery)
	}
}

// column reads the one column of a statement.
func column[T any](ctx context.Context, on db, s statement, a args) ([]T, error) {
	rows, err := on.Query(ctx, s.sql, a)
	if err != nil {
		return nil, wrap(s, err)
	}
	list, err := pgx.CollectRows(rows, pgx.RowTo[T])
	return list, wrap(s, err)
}
