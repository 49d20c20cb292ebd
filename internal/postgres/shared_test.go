package postgres

import (
	"context"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestStart_TwoProcessesShareOneServer(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	first, second := spawn(t, opts), spawn(t, opts)
	one, two := first.joined(t), second.joined(t)
	require.Equal(t, one, two)
	require.True(t, running(one.PID))

	first.leave(t)
	require.Equal(t, 1, query[int](t, one.URL, "select 1"), "the other one still uses it")
	second.leave(t)
	require.False(t, running(one.PID), "the last one out stops it before it goes")
}

func TestStart_ManyProcessesAtOnceMakeOneCluster(t *testing.T) {
	t.Parallel()
	opts := newCluster(t)
	processes := make([]*process, 8)
	for i := range processes {
		processes[i] = spawn(t, opts)
	}
	first := processes[0].joined(t)
	for _, p := range processes[1:] {
		require.Equal(t, first.PID, p.joined(t).PID)
	}
	for _, p := range processes {
		p.leave(t)
	}
	require.False(t, running(first.PID))
}

func TestStart_SharesWithinAProcessToo(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	one, two := start(t, opts), start(t, opts)
	require.Equal(t, one.PID(), two.PID())
	pid := one.PID()
	require.NoError(t, one.Close())
	require.True(t, running(pid))
	require.NoError(t, two.Close())
	require.False(t, running(pid))
}

func TestStart_TheServerStopsWhenItsLastUserIsKilled(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	first, second := spawn(t, opts), spawn(t, opts)
	server := first.joined(t)
	second.joined(t)

	first.kill(t)
	require.Equal(t, 1, query[int](t, server.URL, "select 1"), "the other one still uses it")
	second.kill(t)
	eventually(t, "the watcher stops the server", func() bool { return !running(server.PID) })

	// The next one has a watcher again.
	third := spawn(t, opts)
	server = third.joined(t)
	third.kill(t)
	eventually(t, "the watcher stops the server", func() bool { return !running(server.PID) })
}

func TestStart_WhoComesWhileTheLastOneLeavesHasAServer(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	for range 5 {
		leaving := start(t, opts)
		done := make(chan error, 1)
		go func() { done <- leaving.Close() }()
		coming := start(t, opts)
		require.Equal(t, 1, query[int](t, coming.URL("postgres"), "select 1"))
		require.NoError(t, <-done)
		require.Equal(t, 1, query[int](t, coming.URL("postgres"), "select 1"))
		require.NoError(t, coming.Close())
	}
}

func TestStart_ClustersOfDifferentNamesAreApart(t *testing.T) {
	t.Parallel()
	one, two := start(t, ownCluster(t)), start(t, ownCluster(t))
	require.NotEqual(t, one.PID(), two.PID())
	require.NoError(t, one.CreateDatabase(t.Context(), "mine"))
	require.Zero(t, query[int](t, two.URL("postgres"), "select count(*) from pg_database where datname = 'mine'"))
}

func TestStart_CtrlCDoesNotReachItsPrograms(t *testing.T) {
	t.Parallel()
	s := start(t, ownCluster(t))
	ours := syscall.Getpgrp()
	server, err := syscall.Getpgid(s.PID())
	require.NoError(t, err)
	require.NotEqual(t, ours, server)

	out, err := s.cluster.as.command(t.Context(), "/bin/cat", "/proc/self/stat").Output()
	require.NoError(t, err)
	fields := strings.Fields(string(out))
	require.NotEqual(t, strconv.Itoa(ours), fields[4], "the process group of initdb and pg_ctl")
}

func TestStart_EndsWithItsContext(t *testing.T) {
	t.Parallel()
	opts := ownCluster(t)
	s := start(t, opts)
	require.NoError(t, s.gate.take(t.Context(), syscall.LOCK_EX)) // as one that is starting the server does
	t.Cleanup(func() { require.NoError(t, s.gate.unlock()) })

	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	ended := make(chan error, 1)
	go func() {
		_, err := Start(ctx, opts)
		ended <- err
	}()
	select {
	case err := <-ended:
		require.ErrorIs(t, err, context.DeadlineExceeded)
	case <-time.After(20 * time.Second):
		t.Fatal("it still waits")
	}
}

func TestClose_CanBeCalledAgain(t *testing.T) {
	t.Parallel()
	s := start(t, ownCluster(t))
	require.NoError(t, s.Close())
	require.NoError(t, s.Close())
	require.ErrorIs(t, s.Restart(t.Context(), Fast), ErrClosed)
	require.ErrorIs(t, s.Stop(t.Context(), Fast), ErrClosed)
}

func TestOptions_AreChecked(t *testing.T) {
	t.Parallel()
	for _, opts := range []Options{
		{},
		{Name: "Demo"},
		{Name: "../demo"},
		{Name: "a-name-that-is-much-longer-than-it-may-be"},
		{Name: "demo", Ephemeral: true},
	} {
		_, err := Start(t.Context(), opts)
		require.ErrorContains(t, err, "Name is", "%+v", opts)
	}
}
