package workers

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// Functions that are there at the same time run at the same time, one after the other they share a goroutine, and none is
// left behind: neither with the context nor after a while without work.
func TestCrew_CarriesOutAtOnceAndLeavesNobodyBehind(t *testing.T) {
	for name, end := range map[string]func(context.CancelFunc){"context": func(stop context.CancelFunc) { stop() }, "idle": func(context.CancelFunc) {}} {
		ignore := goleak.IgnoreCurrent()
		ctx, stop := context.WithCancel(context.Background())
		c := newCrew()
		var done sync.WaitGroup
		var together atomic.Int32
		all := make(chan struct{})
		for range 50 {
			done.Add(1)
			c.do(ctx, func() {
				defer done.Done()
				if together.Add(1) == 50 {
					close(all)
				}
				<-all
			})
		}
		done.Wait()
		before := time.Now()
		end(stop)
		require.Eventually(t, func() bool { return goleak.Find(ignore) == nil }, 10*time.Second, 10*time.Millisecond)
		if name == "context" {
			require.Less(t, time.Since(before), crewIdle, "they wait for work that cannot come")
		}
		stop()
	}
}
