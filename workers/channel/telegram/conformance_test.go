package telegram_test

import (
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/weirqueue/weir/internal/postgres/pgtest"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/channel"
	"github.com/weirqueue/weir/workers/channel/telegram"
	"github.com/weirqueue/weir/workers/workerstest"
)

// A message in parts, each a step, goes through what happens to an application's own kinds.
func TestConformance_AMessageInParts(t *testing.T) {
	t.Parallel()
	var silent atomic.Pointer[chan struct{}]
	f := startFake(t, func(int, taken) answer {
		if end := silent.Load(); end != nil {
			return answer{before: func() { <-*end }}
		}
		return answer{}
	})
	workerstest.RunChannel(t, workerstest.ChannelConfig{
		Pool: pgtest.Pool(t),
		Channel: func() (channel.Channel, error) {
			return telegram.New(telegram.Config{Token: token, ServerURL: f.URL, ChatInterval: time.Millisecond})
		},
		Notification: func(i int) jobs.Notification {
			return jobs.Notification{
				To: []jobs.Recipient{jobs.Telegram(strconv.Itoa(i + 1))}, Text: paragraph("one") + "\n\n" + paragraph("two"),
			}
		},
		Taken: func(_ context.Context, m channel.Message) (n int, err error) {
			f.mu.Lock()
			defer f.mu.Unlock()
			for _, got := range f.messages {
				if got.Chat == m.Address && got.Text == m.Text {
					n++
				}
			}
			return n, nil
		},
		Check: func(_ context.Context, _ *pgxpool.Pool, _ *jobs.Run, n jobs.Notification) error {
			f.mu.Lock()
			defer f.mu.Unlock()
			// A replaced owner's copy may come late; the reader has seen the parts in their order by then.
			for _, got := range f.messages {
				if got.Chat == n.To[0].Address {
					if !isPart(got, "one") {
						return errors.New("a part overtook the one before it")
					}
					return nil
				}
			}
			return errors.New("nothing arrived")
		},
		Silence: func() func() {
			end := make(chan struct{})
			silent.Store(&end)
			return func() { silent.Store(nil); close(end) }
		},
	})
}
