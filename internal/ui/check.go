package ui

import (
	"context"
	"time"

	"github.com/weirqueue/weir/internal/doorbell"
)

// checkLimit bounds the look at the database when the server starts.
const checkLimit = 5 * time.Second

// warnOfDatabase logs at the start what the pages would say: nobody may look at one for a while. The server serves all the
// same, since a database may come later.
func (s *Server) warnOfDatabase(ctx context.Context) {
	limited, cancel := context.WithTimeout(ctx, checkLimit)
	defer cancel()
	var weir, river bool
	err := s.cfg.Pool.QueryRow(limited, `select to_regclass('weir.receipts') is not null, to_regclass($1) is not null`,
		doorbell.Table(s.cfg.Schema)).Scan(&weir, &river)
	switch {
	case ctx.Err() != nil: // it ends already
	case err != nil:
		s.cfg.Logger.WarnContext(ctx, "The database does not answer; the pages say so until it does", "error", err)
	case !weir:
		s.cfg.Logger.WarnContext(ctx, notMigrated)
	case !river:
		s.cfg.Logger.WarnContext(ctx, "River's tables are not where RIVER_SCHEMA or the search_path says", "schema", s.cfg.Schema)
	}
}
