package main

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres"
)

// What a matrix is for: each row is the version that it says.
func TestAsk_AnotherMajorThanTheRowsIsAFailure(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	served, err := ask(ctx, postgres.MinMajor-1) // none that any machine has
	require.ErrorContains(t, err, "served, not 13")
	require.NotEqual(t, "-", served)
}

func TestCheck_ReadsTheServersNumber(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		number string
		major  int
		served string
		ok     bool
	}{
		{"140023", 14, "14.23", true}, {"180004", 18, "18.4", true}, {"150014", 14, "15.14", false}, {"", 14, "-", false},
	} {
		served, err := check(c.number, c.major)
		require.Equal(t, c.served, served, c.number)
		require.Equal(t, c.ok, err == nil, c.number)
	}
}

func TestChoose_SomeVersions(t *testing.T) {
	t.Parallel()
	all, err := choose("")
	require.NoError(t, err)
	require.Len(t, all, 5)
	some, err := choose("18,14")
	require.NoError(t, err)
	require.Equal(t, []version{versions[4], versions[0]}, some)
	_, err = choose("13")
	require.ErrorContains(t, err, "from 14 to 18")
}
