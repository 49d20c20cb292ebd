package jobs_test

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
)

func TestWaitOutput_DecodesWhatTheLastStepReturned(t *testing.T) {
	t.Parallel()
	pool := pgtest.Pool(t)
	client := newClient(t, pool)
	kind := jobs.MustKind[int]("sum", jobs.KindConfig{Steps: []jobs.Step{{Name: "add", Effect: jobs.Transactional}}})
	end := func(status jobs.Status, output, code any) jobs.RunID {
		res, err := client.Enqueue(t.Context(), kind.Of(1), nil)
		require.NoError(t, err)
		_, err = pool.Exec(t.Context(), `update weir.run set status = $2, output = $3::jsonb, error_code = $4, error_message = 'no',
			finished_at = clock_timestamp(), next_attempt_at = null, attempt = attempt + 1 where id = $1`, res.Run.ID, status, output, code)
		require.NoError(t, err)
		return res.Run.ID
	}
	type sum struct{ Total int }
	got, err := jobs.WaitOutput[sum](t.Context(), client, end(jobs.StatusSucceeded, `{"Total": 3}`, nil))
	require.NoError(t, err)
	require.Equal(t, sum{3}, got)

	got, err = jobs.WaitOutput[sum](t.Context(), client, end(jobs.StatusSucceeded, nil, nil))
	require.NoError(t, err)
	require.Zero(t, got)

	id := end(jobs.StatusSucceeded, `"three"`, nil)
	_, err = jobs.WaitOutput[sum](t.Context(), client, id)
	var wrong *json.UnmarshalTypeError
	require.ErrorAs(t, err, &wrong)
	require.ErrorContains(t, err, id.String())

	id = end(jobs.StatusFailed, nil, "card_declined")
	_, err = jobs.WaitOutput[sum](t.Context(), client, id)
	require.ErrorIs(t, err, jobs.ErrNotSucceeded)
	var not *jobs.NotSucceededError
	require.ErrorAs(t, err, &not)
	require.Equal(t, jobs.NotSucceededError{Run: id, Status: jobs.StatusFailed, Code: "card_declined", Message: "no"}, *not)
	require.EqualError(t, not, "jobs: run "+id.String()+" is failed: card_declined: no")
	not.Message = "card_declined: no" // as the text of a refusal is
	require.EqualError(t, not, "jobs: run "+id.String()+" is failed: card_declined: no")
	not.Message = ""
	require.EqualError(t, not, "jobs: run "+id.String()+" is failed: card_declined")

	_, err = jobs.WaitOutput[sum](t.Context(), client, jobs.RunID{})
	require.ErrorIs(t, err, jobs.ErrNotFound)
}
