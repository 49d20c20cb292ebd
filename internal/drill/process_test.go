package drill

import (
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
)

// What the database's address says of the session reaches the workers through the proxy.
func TestThroughProxy_KeepsTheSession(t *testing.T) {
	t.Parallel()
	db, err := pgx.ParseConfig("postgres://boss:p%40ss%20w%2Brd%2F%3F@db.example.com:5433/my%20db?sslmode=require&search_path=app,public&options=-c%20work_mem%3D8MB%20-c%20search_path%3Dapp&timezone=Asia/Tokyo")
	require.NoError(t, err)
	got, err := pgx.ParseConfig(throughProxy(*db, 4711, "w1.1"))
	require.NoError(t, err)
	require.Equal(t, "127.0.0.1", got.Host)
	require.EqualValues(t, 4711, got.Port)
	require.Equal(t, []string{"boss", "p@ss w+rd/?", "my db"}, []string{got.User, got.Password, got.Database})
	require.Nil(t, got.TLSConfig)
	require.Equal(t, map[string]string{
		"search_path": "app,public", "timezone": "Asia/Tokyo", "application_name": "weir drill w1.1",
		"options": "-c work_mem=8MB -c search_path=app -c weir_drill.worker=w1.1",
	}, got.RuntimeParams)
}
