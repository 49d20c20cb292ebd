package migrations_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/migrations"
)

// pooler stands before a database and does with the start of each connection what a pooler would.
// start answers the client itself, or returns the message that the server is to get.
func pooler(t *testing.T, url string, start func(*pgproto3.Backend, *pgproto3.StartupMessage) *pgproto3.StartupMessage) string {
	t.Helper()
	server, err := pgx.ParseConfig(url)
	require.NoError(t, err)
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	done := make(chan struct{})
	t.Cleanup(func() {
		require.NoError(t, listener.Close())
		<-done
	})
	go func() {
		defer close(done)
		for {
			client, err := listener.Accept()
			if err != nil {
				return
			}
			_ = relay(client, server, start)
			client.Close()
		}
	}()
	return "postgres://" + server.User + "@" + listener.Addr().String() + "/" + server.Database + "?sslmode=disable"
}

func relay(client net.Conn, config *pgx.ConnConfig, start func(*pgproto3.Backend, *pgproto3.StartupMessage) *pgproto3.StartupMessage) error {
	backend := pgproto3.NewBackend(client, client)
	first, err := backend.ReceiveStartupMessage()
	if err != nil {
		return err
	}
	message, ok := first.(*pgproto3.StartupMessage)
	if !ok {
		return errors.New("not a startup message")
	}
	message = start(backend, message)
	if message == nil {
		return backend.Flush()
	}
	server, err := net.Dial("unix", config.Host+"/.s.PGSQL.5432")
	if err != nil {
		return err
	}
	defer server.Close()
	encoded, err := message.Encode(nil)
	if err != nil {
		return err
	}
	if _, err := server.Write(encoded); err != nil {
		return err
	}
	go func() {
		defer server.Close()
		_, _ = io.Copy(server, client)
	}()
	_, err = io.Copy(client, server)
	return err
}

func TestUp_ThroughAPoolerThatRefusesSettingsSaysSo(t *testing.T) {
	t.Parallel()
	url := pooler(t, pgtest.Empty(t), func(client *pgproto3.Backend, m *pgproto3.StartupMessage) *pgproto3.StartupMessage {
		for name := range m.Parameters {
			if name != "user" && name != "database" { // as PgBouncer does
				client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "08P01", Message: "unsupported startup parameter: " + name})
				return nil
			}
		}
		return m
	})
	err := migrations.Up(t.Context(), url, migrations.Options{})
	require.ErrorIs(t, err, migrations.ErrPooler)
	require.ErrorContains(t, err, "migrations need a direct connection to PostgreSQL, and this looks like a transaction pooler")
	require.NotContains(t, err.Error(), "\n")
}

func TestUp_ThroughAPoolerThatDropsSettingsSaysSo(t *testing.T) {
	t.Parallel()
	empty := pgtest.Empty(t)
	before := objects(t, empty)
	url := pooler(t, empty, func(_ *pgproto3.Backend, m *pgproto3.StartupMessage) *pgproto3.StartupMessage {
		m.Parameters = map[string]string{"user": m.Parameters["user"], "database": m.Parameters["database"]}
		return m
	})
	err := migrations.Up(t.Context(), url, migrations.Options{})
	require.ErrorIs(t, err, migrations.ErrPooler)
	require.Equal(t, before, objects(t, empty))
}

func TestUp_OnAServerThatIsTooOldSaysSo(t *testing.T) {
	t.Parallel()
	url := pooler(t, pgtest.Empty(t), func(client *pgproto3.Backend, m *pgproto3.StartupMessage) *pgproto3.StartupMessage {
		client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "42704", Message: `unrecognized configuration parameter "idle_session_timeout"`})
		return nil
	})
	require.ErrorContains(t, migrations.Up(t.Context(), url, migrations.Options{}), "migrations need PostgreSQL 14 or newer")
}

func TestUp_OnAReadOnlyDatabaseSaysSo(t *testing.T) {
	t.Parallel()
	const readOnly = `do $$ begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end $$`
	empty := pgtest.Empty(t)
	execute(t, empty, readOnly)
	err := migrations.Up(t.Context(), empty, migrations.Options{})
	require.ErrorIs(t, err, migrations.ErrReadOnly)
	require.ErrorContains(t, err, "the address of the primary")

	migrated := pgtest.URL(t)
	execute(t, migrated, readOnly)
	require.NoError(t, migrations.Up(t.Context(), migrated, migrations.Options{}), "there is nothing to write")
}

func TestUp_WithoutAServerSaysSo(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	address := listener.Addr().String()
	require.NoError(t, listener.Close())

	err = migrations.Up(t.Context(), "postgres://someone:secret@"+address+"/weir?sslmode=disable", migrations.Options{})
	require.ErrorIs(t, err, migrations.ErrUnreachable)
	require.ErrorContains(t, err, address)
	require.NotContains(t, err.Error(), "secret")
}

func TestUp_OnAServerThatIsStartingSaysSo(t *testing.T) {
	t.Parallel()
	url := pooler(t, pgtest.Empty(t), func(client *pgproto3.Backend, m *pgproto3.StartupMessage) *pgproto3.StartupMessage {
		client.Send(&pgproto3.ErrorResponse{Severity: "FATAL", Code: "57P03", Message: "the database system is starting up"})
		return nil
	})
	require.ErrorIs(t, migrations.Up(t.Context(), url, migrations.Options{}), migrations.ErrUnreachable)
}

func TestUp_TheErrorForAWrongAddressHidesThePassword(t *testing.T) {
	t.Parallel()
	err := migrations.Up(context.Background(), "postgres://someone:secret@host:port/weir", migrations.Options{})
	require.Error(t, err)
	require.False(t, strings.Contains(err.Error(), "secret"), "%v", err)
}
