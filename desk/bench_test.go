package desk_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
)

// BenchmarkSave is a PUT over HTTP: by one writer, and by 50 at once, each with a file of their own.
func BenchmarkSave(b *testing.B) {
	for _, size := range []int{1_000, 100_000, desk.MaxContentCharacters - 100} {
		for _, writers := range []int{1, 50} {
			b.Run(fmt.Sprintf("%dkB/%d", size/1000, writers), func(b *testing.B) {
				a := newAPI(b)
				text := strings.Repeat("x", size)
				var saves atomic.Int64
				b.SetParallelism(max(1, writers/2))
				one := func(next func() bool) {
					file := a.create("")
					for v := int64(1); next(); v++ {
						res := a.plain(http.MethodPut, file, put(v, fmt.Sprint("s", saves.Add(1)), text))
						if res != http.StatusOK {
							b.Errorf("status %d", res)
						}
					}
				}
				b.ResetTimer()
				if writers == 1 {
					one(b.Loop)
					return
				}
				b.RunParallel(func(pb *testing.PB) { one(pb.Next) })
			})
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, size := range []int{1_000, desk.MaxContentCharacters - 100} {
		b.Run(fmt.Sprintf("%dkB", size/1000), func(b *testing.B) {
			a := newAPI(b)
			file := a.create(strings.Repeat("x", size))
			for b.Loop() {
				a.plain(http.MethodGet, file, "")
			}
		})
	}
}

// plain makes a request without holding the answer against the description.
func (a *api) plain(method, path, body string) int {
	req, err := http.NewRequestWithContext(a.t.Context(), method, a.url+path, strings.NewReader(body))
	require.NoError(a.t, err)
	req.Header.Set(userHeader, "ada")
	req.Header.Set("Content-Type", "application/json")
	res, err := a.http.Do(req)
	require.NoError(a.t, err)
	defer res.Body.Close()
	_, err = io.Copy(io.Discard, res.Body)
	require.NoError(a.t, err)
	return res.StatusCode
}
