package workers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/doorbell"
	"github.com/weirqueue/weir/internal/fencing"
)

// Conditions under which a process of the fleet does not start.
var (
	// ErrPooler: workers hold session state (LISTEN, timeouts), which a transaction pooler does not keep.
	ErrPooler = errors.New("workers need a direct connection to PostgreSQL, this looks like a transaction pooler: point the workers' DATABASE_URL at the server itself")
	// ErrNotMigrated: the tables are not there.
	ErrNotMigrated = errors.New("the database has no Weir tables, or older ones: run `worker migrate up` first")
	// ErrReadOnly: the server takes no writes.
	ErrReadOnly = errors.New("the database is read-only: this is a standby, or a primary that was demoted")
)

const probeSetting = "idle_in_transaction_session_timeout"

// dialOwn opens a connection beside the pool, to the same server, that handlers cannot use up. It bounds on the server
// what this process cannot bound once it is frozen or cut off.
func dialOwn(ctx context.Context, pool *pgxpool.Pool, name string, timeout time.Duration) (*pgx.Conn, error) {
	poolConfig := pool.Config()
	cfg := poolConfig.ConnConfig.Copy()
	if poolConfig.BeforeConnect != nil {
		if err := poolConfig.BeforeConnect(ctx, cfg); err != nil {
			return nil, err
		}
	}
	// The pool may be one for enqueuing, in a mode without prepared statements; this connection is direct.
	cfg.DefaultQueryExecMode = pgx.QueryExecModeCacheStatement
	ms := strconv.FormatInt(max(timeout.Milliseconds(), 1), 10)
	cfg.RuntimeParams["application_name"] = name
	cfg.RuntimeParams[probeSetting] = ms
	cfg.RuntimeParams["statement_timeout"] = ms
	cfg.RuntimeParams["tcp_keepalives_idle"] = "10"
	cfg.RuntimeParams["tcp_keepalives_interval"] = "5"
	cfg.RuntimeParams["tcp_keepalives_count"] = "3"
	return pgx.ConnectConfig(ctx, cfg)
}

// checkDatabase says in one sentence why a process cannot work on this database.
func checkDatabase(ctx context.Context, pool *pgxpool.Pool, schema string) error {
	conn, err := dialOwn(ctx, pool, "weir check", 10*time.Second)
	if err != nil {
		var pgErr *pgconn.PgError
		if errors.As(err, &pgErr) && strings.Contains(pgErr.Message, "unsupported startup parameter") {
			return ErrPooler
		}
		return fmt.Errorf("workers: connect to PostgreSQL: %w", err)
	}
	defer closeSoon(conn)
	var (
		setting            string
		weir, river, write bool
	)
	err = conn.QueryRow(ctx, `select current_setting('`+probeSetting+`'),
		to_regclass('weir.run') is not null and to_regclass('weir.receipts') is not null,
		to_regclass($1) is not null, current_setting('transaction_read_only') = 'off'`, doorbell.Table(schema)).
		Scan(&setting, &weir, &river, &write)
	switch {
	case err != nil:
		return fmt.Errorf("workers: look at the database: %w", err)
	case setting != "10s":
		return ErrPooler
	case !weir:
		return ErrNotMigrated
	case !river && schema == "":
		return fmt.Errorf("%w (Weir's are there; River's are not in the search_path)", ErrNotMigrated)
	case !river:
		return fmt.Errorf("%w (Weir's are there; River's are not in the schema %q)", ErrNotMigrated, schema)
	case !write:
		return ErrReadOnly
	}
	return nil
}

func closeSoon(conn *pgx.Conn) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = conn.Close(ctx)
}

// dropReadOnly makes the pool dial anew after a failover left its connections on a server that takes no writes.
func dropReadOnly(pool *pgxpool.Pool, err error) {
	if fencing.IsReadOnly(err) {
		pool.Reset()
	}
}
