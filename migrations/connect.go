package migrations

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

var (
	// ErrPooler: the address leads to a connection pooler, through which a lock of a session does not hold.
	ErrPooler = errors.New("migrations need a direct connection to PostgreSQL, and this looks like a transaction pooler: " +
		"give the server's own address")

	// ErrReadOnly: the server takes no writes, but there is something to migrate.
	ErrReadOnly = errors.New("migrations need a database that can be written to, and this one is read-only: " +
		"give the address of the primary, or lift default_transaction_read_only")

	// ErrUnreachable: no server answers at the address, or it takes no connections yet.
	ErrUnreachable = errors.New("PostgreSQL cannot be reached")
)

// The setting that tells a pooler from a server: sent when connecting and read back. PgBouncer refuses it, or is
// configured to drop it; other poolers drop it. It is also a useful one, and its value one that nobody sets.
const (
	probe      = "idle_in_transaction_session_timeout"
	probeValue = "299s"
)

// parse is the configuration of the connections that migrate.
func parse(databaseURL string) (*pgxpool.Config, error) {
	config, err := pgxpool.ParseConfig(databaseURL)
	if err != nil {
		return nil, fmt.Errorf("the database's address: %w", err)
	}
	config.MaxConns, config.MinConns, config.MinIdleConns = 2, 0, 0
	config.ConnConfig.RuntimeParams[probe] = probeValue
	// The connection with the lock is idle while the others work.
	config.ConnConfig.RuntimeParams["idle_session_timeout"] = "0"
	if config.ConnConfig.ConnectTimeout == 0 {
		config.ConnConfig.ConnectTimeout = 15 * time.Second
	}
	return config, nil
}

// dial connects and makes sure that the other end is PostgreSQL itself.
func dial(ctx context.Context, config *pgx.ConnConfig) (*pgx.Conn, error) {
	conn, err := pgx.ConnectConfig(ctx, config)
	if err != nil {
		return nil, explain(err)
	}
	var direct bool
	err = conn.QueryRow(ctx, "select current_setting($1)::interval = $2::interval", probe, probeValue).Scan(&direct)
	if err == nil && !direct {
		err = ErrPooler
	}
	if err != nil {
		return nil, errors.Join(explain(err), hangUp(ctx, conn))
	}
	return conn, nil
}

// explain puts a sentence that says what to do before the errors that have one cause.
func explain(err error) error {
	var (
		refused *pgconn.PgError
		connect *pgconn.ConnectError
	)
	connecting := errors.As(err, &connect)
	switch {
	case err == nil:
		return nil
	case errors.As(err, &refused):
		switch {
		// PgBouncer has no code of its own for this.
		case refused.Code == "08P01" && strings.Contains(refused.Message, "unsupported startup parameter"):
			return fmt.Errorf("%w (it answered: %s)", ErrPooler, refused.Message)
		case refused.Code == "42704" && connecting: // undefined_object: a setting that came with version 14
			return fmt.Errorf("migrations need PostgreSQL 14 or newer: %w", err)
		case refused.Code == "25006": // read_only_sql_transaction
			return fmt.Errorf("%w: %w", ErrReadOnly, err)
		case refused.Code == "57P03": // cannot_connect_now
			return fmt.Errorf("%w: %w", ErrUnreachable, err)
		}
		return err
	case errors.Is(err, context.Canceled):
		return err
	case connecting:
		return fmt.Errorf("%w at %s: %w", ErrUnreachable, address(connect.Config), err)
	default:
		return err
	}
}

func address(config *pgconn.Config) string {
	if strings.HasPrefix(config.Host, "/") {
		return config.Host
	}
	return net.JoinHostPort(config.Host, strconv.Itoa(int(config.Port)))
}
