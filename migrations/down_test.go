package migrations_test

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/migrations"
)

func TestDown_UndoesWeirsNewestMigrationAndNeverRivers(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	whole := objects(t, url)
	river, weir := applied(t, url, migrations.SourceRiver), applied(t, url, migrations.SourceWeir)
	for ; weir > 0; weir-- {
		require.NoError(t, migrations.Down(t.Context(), url, migrations.Options{}))
		require.Equal(t, weir-1, applied(t, url, migrations.SourceWeir))
		require.Equal(t, river, applied(t, url, migrations.SourceRiver))
	}
	require.NoError(t, migrations.Down(t.Context(), url, migrations.Options{}), "nothing to undo is no error")
	require.Equal(t, river, applied(t, url, migrations.SourceRiver))

	up(t, url)
	require.Equal(t, whole, objects(t, url), "up restores what down removed")
}

func TestDown_EachMigrationRemovesAllThatItMade(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	for applied(t, url, migrations.SourceWeir) > 0 {
		require.NoError(t, migrations.Down(t.Context(), url, migrations.Options{}))
	}
	for _, object := range objects(t, url) {
		if !strings.Contains(object, "goose_db_version") {
			require.NotRegexp(t, `\b(weir|desk)\.`, object)
		}
	}
}

func TestDown_OnAnEmptyDatabaseMakesNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	before := objects(t, url)
	require.NoError(t, migrations.Down(t.Context(), url, migrations.Options{}))
	require.Equal(t, before, objects(t, url))
	require.NoError(t, migrations.DownAll(t.Context(), url, migrations.Options{}))
	require.Equal(t, before, objects(t, url))
}

func TestDown_RefusesAMigrationItDoesNotKnow(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	execute(t, url, "insert into weir.goose_db_version (version_id, is_applied) values (99999, true)")
	before := objects(t, url)
	for _, down := range []func() error{
		func() error { return migrations.Down(t.Context(), url, migrations.Options{}) },
		func() error { return migrations.DownAll(t.Context(), url, migrations.Options{}) },
	} {
		require.ErrorIs(t, down(), migrations.ErrNewer)
		require.Equal(t, before, objects(t, url))
	}
}

func TestDownAll_LeavesNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	before := objects(t, url)
	up(t, url)
	require.NoError(t, migrations.DownAll(t.Context(), url, migrations.Options{}))
	require.Equal(t, before, objects(t, url))
	up(t, url)
}

func TestDownAll_KeepsWhatIsNotWeirs(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	execute(t, url, "create table weir.precious as select 42 as answer")
	require.ErrorContains(t, migrations.DownAll(t.Context(), url, migrations.Options{}), "precious")
	require.Equal(t, []int{42}, values[int](t, url, "select answer from weir.precious"))

	execute(t, url, "drop table weir.precious")
	require.NoError(t, migrations.DownAll(t.Context(), url, migrations.Options{}), "it can be called again")
	require.NotContains(t, objects(t, url), "schema weir")
}

func TestStatus_ListsWhatIsMissingAndWritesNothing(t *testing.T) {
	t.Parallel()
	url := pgtest.Empty(t)
	execute(t, url, `do $$ begin execute format('alter database %I set default_transaction_read_only = on', current_database()); end $$`)
	before := objects(t, url)
	list, err := migrations.Status(t.Context(), url, migrations.Options{})
	require.NoError(t, err)
	require.NotEmpty(t, list)
	for i, m := range list {
		require.False(t, m.Applied, "%+v", m)
		if i > 0 && list[i-1].Source == m.Source {
			require.Greater(t, m.Version, list[i-1].Version)
		}
	}
	require.Equal(t, migrations.SourceRiver, list[0].Source)
	require.Equal(t, migrations.SourceWeir, list[len(list)-1].Source)
	require.Equal(t, before, objects(t, url))
}

func TestStatus_ListsAMigrationItDoesNotKnow(t *testing.T) {
	t.Parallel()
	url := pgtest.URL(t)
	execute(t, url, `
		insert into weir.goose_db_version (version_id, is_applied) values (99999, true);
		insert into river_migration (line, version) values ('main', 88888), ('pro', 77777)`)
	list, err := migrations.Status(t.Context(), url, migrations.Options{})
	require.NoError(t, err)
	require.Contains(t, list, migrations.Migration{Source: migrations.SourceWeir, Version: 99999, Applied: true})
	require.Contains(t, list, migrations.Migration{Source: migrations.SourceRiver, Version: 88888, Applied: true})
	require.NotContains(t, list, migrations.Migration{Source: migrations.SourceRiver, Version: 77777, Applied: true}, "another line")
}
