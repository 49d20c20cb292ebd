package desk_test

import (
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

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

// BenchmarkLargeSave takes a PUT of 500 kB over HTTP and a bare UPDATE of the same row in turn.
func BenchmarkLargeSave(b *testing.B) {
	a := newAPI(b)
	file, contents := a.create(""), largeTexts(b)
	id := strings.TrimPrefix(file, "/api/desk/files/")
	var bare, puts []time.Duration
	for v := int64(1); b.Loop(); v++ {
		content := string(contents[v%2].JSON())
		began := time.Now()
		execSQL(b, a.pool, `update desk.file set content = $2::text::json where id = $1`, id, content)
		between := time.Now()
		body := fmt.Sprintf(`{"expectedVersion":%d,"saveId":"s%d","writerId":"tab-1","schemaVersion":1,"content":%s}`, v, v, content)
		require.Equal(b, http.StatusOK, a.plain(http.MethodPut, file, body))
		bare, puts = append(bare, between.Sub(began)), append(puts, time.Since(between))
	}
	for name, list := range map[string][]time.Duration{"bare": bare, "PUT": puts} {
		slices.Sort(list)
		b.ReportMetric(float64(list[len(list)/2].Microseconds())/1000, name+"-p50-ms")
		b.ReportMetric(float64(list[len(list)*99/100].Microseconds())/1000, name+"-p99-ms")
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
