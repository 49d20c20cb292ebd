package plan_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/plan"
)

func TestCanonical_SurrogatesAreWholeOrRefused(t *testing.T) {
	t.Parallel()
	for in, want := range map[string]string{
		`"\ud83d\ude00"`: `"😀"`, `"\\ud800"`: `"\\ud800"`, `"\ud800"`: "", `"\ude00"`: "", `"\ud83d\ud83d\ude00"`: "", `"\ud83dx\ude00"`: "",
		`{"b":1,"a":[1.10,-0,1e3]}`: `{"a":[1.10,-0,1e3],"b":1}`, `"<&>"`: `"<&>"`, ` null `: `null`, `{"a":1,"a":1}`: "", `1 2`: "", `1e1001`: "",
	} {
		got, _, err := plan.Canonical([]byte(in))
		require.Equal(t, want == "", err != nil, in)
		require.Equal(t, want, string(got), in)
	}
}
