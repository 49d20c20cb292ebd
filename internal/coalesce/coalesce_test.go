package coalesce_test

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"

	"github.com/weirqueue/weir/internal/coalesce"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

type in struct{ key, value int }

var errDoubt = errors.New("the answer was lost")

// world carries out calls: it holds each batch until it is let go.
type world struct {
	mu      sync.Mutex
	batches [][]in
	ones    []in
	entered chan struct{}
	goOn    chan struct{}
	many    func([]in) (map[int]int, error)
}

func newWorld() *world {
	return &world{entered: make(chan struct{}, 4000), goOn: make(chan struct{}), many: func(batch []in) (map[int]int, error) {
		out := map[int]int{}
		for _, c := range batch {
			out[c.key] = c.value * 10
		}
		return out, nil
	}}
}

func (w *world) group(limit int, change ...func(*coalesce.Config[int, in, int])) *coalesce.Group[int, in, int] {
	cfg := coalesce.Config[int, in, int]{
		Key: func(c in) int { return c.key }, Max: limit, Flushers: 1, Timeout: time.Minute,
		InDoubt: func(err error) bool { return errors.Is(err, errDoubt) },
		One: func(_ context.Context, c in) (int, error) {
			w.mu.Lock()
			w.ones = append(w.ones, c)
			w.mu.Unlock()
			w.entered <- struct{}{}
			<-w.goOn
			if c.value < 0 {
				return 0, errors.New("refused")
			}
			return c.value, nil
		},
		Many: func(_ context.Context, batch []in) (map[int]int, error) {
			w.mu.Lock()
			w.batches = append(w.batches, batch)
			w.mu.Unlock()
			w.entered <- struct{}{}
			<-w.goOn
			return w.many(batch)
		},
	}
	for _, f := range change {
		f(&cfg)
	}
	return coalesce.New(cfg)
}

type answer struct {
	out int
	err error
}

// occupy starts a first call, which is under way until the world goes on, and then queues more.
func occupy(t *testing.T, w *world, g *coalesce.Group[int, in, int], calls ...in) []chan answer {
	t.Helper()
	var answers []chan answer
	for i, c := range append([]in{{key: -1}}, calls...) {
		ch := make(chan answer, 1)
		answers = append(answers, ch)
		go func() {
			out, err := g.Do(context.Background(), c)
			ch <- answer{out, err}
		}()
		if i == 0 {
			<-w.entered
			continue
		}
		require.Eventually(t, func() bool { return g.Waiting() == i }, 5*time.Second, time.Millisecond)
	}
	return answers
}

func TestDo_OneCallAloneIsCarriedOutAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld()
	close(w.goOn)
	out, err := w.group(10).Do(t.Context(), in{1, 7})
	require.NoError(t, err)
	require.Equal(t, 7, out)
	require.Empty(t, w.batches)
}

func TestDo_WhatWaitsTogetherIsOneBatchInOrderAndNoKeyTwice(t *testing.T) {
	t.Parallel()
	w := newWorld()
	answers := occupy(t, w, w.group(3), in{1, 1}, in{2, 2}, in{1, 3}, in{3, 4}, in{4, 5})
	close(w.goOn)
	for i, want := range []int{0, 10, 20, 30, 40, 50} {
		got := <-answers[i]
		require.NoError(t, got.err)
		require.Equal(t, want, got.out)
	}
	require.Equal(t, [][]in{{{1, 1}, {2, 2}, {3, 4}}, {{1, 3}, {4, 5}}}, w.batches)
}

// A batch that hangs does not hold up what comes after it, and one that does not hang has all that waits.
func TestDo_WhatWaitsGoesBesideABatchThatTakesLong(t *testing.T) {
	t.Parallel()
	w := newWorld()
	answers := occupy(t, w, w.group(10, func(c *coalesce.Config[int, in, int]) { c.Flushers, c.Patience = 2, 200*time.Millisecond }), in{1, 1}, in{2, 2})
	select {
	case <-w.entered:
	case <-time.After(10 * time.Second):
		require.Fail(t, "what waits was held up")
	}
	w.mu.Lock()
	require.Equal(t, [][]in{{{1, 1}, {2, 2}}}, w.batches)
	w.mu.Unlock()
	close(w.goOn)
	for _, a := range answers {
		require.NoError(t, (<-a).err)
	}
}

func TestDo_HalfABatchThatWaitsDoesNotWaitForPatience(t *testing.T) {
	t.Parallel()
	w := newWorld()
	g := w.group(6, func(c *coalesce.Config[int, in, int]) { c.Flushers, c.Patience = 2, time.Hour })
	answers := occupy(t, w, g, in{1, 1}, in{2, 2})
	last := make(chan answer, 1)
	go func() {
		out, err := g.Do(context.Background(), in{3, 3})
		last <- answer{out, err}
	}()
	<-w.entered
	close(w.goOn)
	for _, a := range append(answers, last) {
		require.NoError(t, (<-a).err)
	}
	require.Equal(t, [][]in{{{1, 1}, {2, 2}, {3, 3}}}, w.batches)
}

// Calls that hang alone, as many as there are flushers, do not hold up what comes after them.
func TestDo_CallsThatHangAloneKeepNoFlusher(t *testing.T) {
	t.Parallel()
	w := newWorld()
	g := w.group(10, func(c *coalesce.Config[int, in, int]) { c.Flushers, c.Hold = 1, 20*time.Millisecond })
	ctx := context.Background()
	answers := make(chan answer, 5)
	for i := range 5 {
		go func() {
			out, err := g.Do(ctx, in{i, i})
			answers <- answer{out, err}
		}()
		select {
		case <-w.entered:
		case <-time.After(10 * time.Second):
			require.Fail(t, "a call was held up", "call %d", i)
		}
	}
	close(w.goOn)
	for range 5 {
		require.NoError(t, (<-answers).err)
	}
	out, err := g.Do(ctx, in{7, 7})
	require.NoError(t, err)
	require.Equal(t, 7, out, "the count of flushers is right again")
}

func TestDo_ABadElementFailsAlone(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.many = func([]in) (map[int]int, error) { return nil, errors.New("an element was refused") }
	answers := occupy(t, w, w.group(10), in{1, 1}, in{2, -2}, in{3, 3})
	close(w.goOn)
	require.NoError(t, (<-answers[0]).err)
	require.Equal(t, answer{1, nil}, <-answers[1])
	require.ErrorContains(t, (<-answers[2]).err, "refused")
	require.Equal(t, answer{3, nil}, <-answers[3])
}

func TestDo_WhatABatchLeavesOutIsDecidedAlone(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.many = func([]in) (map[int]int, error) { return map[int]int{1: 10}, nil }
	answers := occupy(t, w, w.group(10), in{1, 1}, in{2, 2})
	close(w.goOn)
	<-answers[0]
	require.Equal(t, answer{10, nil}, <-answers[1])
	require.Equal(t, answer{2, nil}, <-answers[2])
}

func TestDo_ALostAnswerIsEveryCallsDoubt(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.many = func([]in) (map[int]int, error) { return nil, errDoubt }
	answers := occupy(t, w, w.group(10), in{1, 1}, in{2, 2})
	close(w.goOn)
	<-answers[0]
	require.ErrorIs(t, (<-answers[1]).err, errDoubt)
	require.ErrorIs(t, (<-answers[2]).err, errDoubt)
	require.Len(t, w.ones, 1, "only the first: nothing is sent again that may have been carried out")
}

func TestDo_AContextThatEndsInTheQueueSendsNothing(t *testing.T) {
	t.Parallel()
	w := newWorld()
	g := w.group(10)
	answers := occupy(t, w, g, in{1, 1})
	ctx, cancel := context.WithCancelCause(t.Context())
	left := make(chan answer, 1)
	go func() {
		out, err := g.Do(ctx, in{2, 2})
		left <- answer{out, err}
	}()
	require.Eventually(t, func() bool { return g.Waiting() == 2 }, 5*time.Second, time.Millisecond)
	cause := errors.New("shutdown")
	cancel(cause)
	got := <-left
	require.ErrorIs(t, got.err, coalesce.ErrNotSent)
	require.ErrorIs(t, got.err, cause)
	_, err := g.Do(ctx, in{3, 3})
	require.ErrorIs(t, err, coalesce.ErrNotSent)
	close(w.goOn)
	<-answers[0]
	require.NoError(t, (<-answers[1]).err)
	require.Len(t, w.ones, 2, "key 2 was never sent")
}

// What is under way is not left: the caller must know what became of it.
func TestDo_AContextThatEndsUnderWayWaitsForTheAnswer(t *testing.T) {
	t.Parallel()
	w := newWorld()
	g := w.group(10)
	ctx, cancel := context.WithCancel(t.Context())
	got := make(chan answer, 1)
	go func() {
		out, err := g.Do(ctx, in{1, 5})
		got <- answer{out, err}
	}()
	<-w.entered
	cancel()
	select {
	case <-got:
		t.Fatal("it left")
	case <-time.After(50 * time.Millisecond):
	}
	close(w.goOn)
	require.Equal(t, answer{5, nil}, <-got)
}

func TestDo_APanicIsTheCallersError(t *testing.T) {
	t.Parallel()
	w := newWorld()
	w.many = func([]in) (map[int]int, error) { panic("a bug") }
	answers := occupy(t, w, w.group(10), in{1, 1}, in{2, 2})
	close(w.goOn)
	require.NoError(t, (<-answers[0]).err)
	require.ErrorContains(t, (<-answers[1]).err, "a bug")
	require.ErrorContains(t, (<-answers[2]).err, "a bug")
	require.Len(t, w.ones, 1, "nobody knows what was sent, so nothing is sent again")
}

func TestDo_ManyCallersAtOnce(t *testing.T) {
	t.Parallel()
	w := newWorld()
	close(w.goOn)
	g := w.group(50)
	var (
		all  sync.WaitGroup
		good atomic.Int32
	)
	for i := range 2000 {
		all.Go(func() {
			out, err := g.Do(t.Context(), in{i % 300, i})
			if err == nil && (out == i || out == i*10) {
				good.Add(1)
			}
		})
	}
	all.Wait()
	require.EqualValues(t, 2000, good.Load())
	require.Zero(t, g.Waiting())
}
