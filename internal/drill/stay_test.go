package drill_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/drill"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

func count(t *testing.T, pool *pgxpool.Pool, sql string) (n int) {
	t.Helper()
	require.NoError(t, pool.QueryRow(t.Context(), sql).Scan(&n))
	return n
}

// Ctrl-C on somebody's database: no run is left that waits for a worker, no doorbell, no trigger.
func TestDrill_LeavesNothingUnfinishedInSomebodysDatabase(t *testing.T) {
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	opts, _ := options(t, time.Minute)
	opts.DatabaseURL = url
	ctx, cancel := context.WithTimeout(t.Context(), 6*time.Second)
	defer cancel()
	_, err := drill.Run(ctx, opts, drill.Subjects(opts.Seed))
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Positive(t, count(t, pool, "select count(*) from weir.run where error_code = 'drill_ended'"), "nothing was under way")
	require.Zero(t, count(t, pool, "select count(*) from weir.run where finished_at is null"))
	require.Zero(t, count(t, pool, "select count(*) from weir.receipts where outcome = 'started'"))
	require.Zero(t, count(t, pool, "select count(*) from river_job where state in ('available', 'running', 'scheduled', 'retryable')"))
	require.Zero(t, count(t, pool, "select count(*) from pg_namespace where nspname = 'weir_drill'"))
	require.Zero(t, count(t, pool, "select count(*) from pg_trigger where tgname = 'weir_drill_notes'"))
	require.Zero(t, count(t, pool, "select count(*) from pg_locks where locktype = 'advisory' and database = (select oid from pg_database where datname = current_database())"))
}

// A drill breaks what it finds: it does not begin where others work, and leaves their things alone.
func TestDrill_RefusesADatabaseThatIsInUse(t *testing.T) {
	url := pgtest.URL(t)
	pool := pgtest.Connect(t, url)
	refused := func(why string) {
		t.Helper()
		opts, _ := options(t, 5*time.Second)
		opts.DatabaseURL = url
		_, err := drill.Run(t.Context(), opts, drill.Subjects(opts.Seed))
		require.ErrorContains(t, err, why)
		require.Zero(t, children(t))
	}
	conn, err := pgx.Connect(t.Context(), url)
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "select pg_advisory_lock($1)", int64(drill.LockOfDrills))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "create schema weir_drill")
	require.NoError(t, err)
	refused("another drill")
	require.Equal(t, 1, count(t, pool, "select count(*) from pg_namespace where nspname = 'weir_drill'"), "the other drill's records are gone")
	require.NoError(t, conn.Close(t.Context()))
	_, err = pool.Exec(t.Context(), "drop schema weir_drill")
	require.NoError(t, err)

	cfg := pool.Config().ConnConfig.Copy()
	cfg.RuntimeParams["application_name"] = "weir heartbeat"
	beat, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	refused("1 worker processes")
	require.NoError(t, beat.Close(t.Context()))

	client, err := jobs.NewClient(pool, nil)
	require.NoError(t, err)
	res, err := client.Notify(t.Context(), jobs.Notification{To: []jobs.Recipient{jobs.Email("a@example.com")}, Subject: "s", Text: "t"}, nil)
	require.NoError(t, err)
	refused("1 runs that have not ended")
	run, err := client.Get(t.Context(), res.Runs[0].ID)
	require.NoError(t, err)
	require.False(t, run.Terminal())
}

// A worker that crashes by itself is not ok, whatever the records say; nor is a drill without runs, or without faults.
func TestDrill_WhatProvesNothingIsNotOK(t *testing.T) {
	t.Run("a worker crashes", func(t *testing.T) {
		opts, _ := options(t, 5*time.Second)
		opts.Only = []string{"delay"}
		go func() {
			time.Sleep(4 * time.Second)
			for range 50 {
				if pids := childPIDs(t); len(pids) == opts.Workers {
					_ = syscall.Kill(pids[0], syscall.SIGKILL)
					return
				}
				time.Sleep(50 * time.Millisecond)
			}
		}()
		report, err := drill.Run(t.Context(), opts, drill.Subjects(opts.Seed))
		require.NoError(t, err)
		require.False(t, report.OK)
		require.Contains(t, strings.Join(report.Broken, "\n"), "ended by itself")
	})
	t.Run("no runs", func(t *testing.T) {
		opts, _ := options(t, 5*time.Second)
		opts.Only = []string{"kill"}
		subjects := drill.Subjects(opts.Seed)
		subjects[0] = unaskable{subjects[0]}
		report, err := drill.Run(t.Context(), opts, subjects)
		require.NoError(t, err)
		require.False(t, report.OK)
		require.Contains(t, strings.Join(report.Broken, "\n"), "no run of delivery: not today")
	})
	t.Run("no faults", func(t *testing.T) {
		opts, _ := options(t, 5*time.Second)
		opts.Only = []string{"restart"} // comes after 18 s
		report, err := drill.Run(t.Context(), opts, drill.Subjects(opts.Seed))
		require.NoError(t, err)
		require.False(t, report.OK)
		require.Contains(t, strings.Join(report.Broken, "\n"), "none of the faults")
	})
}

type unaskable struct{ drill.Subject }

func (unaskable) Enqueue(context.Context, pgx.Tx, *jobs.Client, int64) (jobs.RunID, error) {
	return jobs.RunID{}, errors.New("not today")
}

func childPIDs(t *testing.T) (pids []int) {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		return nil
	}
	list, _ := filepath.Glob("/proc/[0-9]*/stat")
	for _, file := range list {
		stat, err := os.ReadFile(file)
		if err != nil {
			continue // it has just ended
		}
		_, rest, _ := strings.Cut(string(stat), ") ")
		if f := strings.Fields(rest); len(f) > 1 && f[1] == fmt.Sprint(os.Getpid()) {
			if exe, err := os.Readlink(filepath.Dir(file) + "/exe"); err == nil && exe == self {
				pid, _ := strconv.Atoi(filepath.Base(filepath.Dir(file)))
				pids = append(pids, pid)
			}
		}
	}
	return pids
}
