package desk

import (
	"container/list"
	"sync"
	"time"

	"golang.org/x/time/rate"
)

// limiter gives each user a bucket of requests. Its memory is bounded: past maxUsers the user who was not heard of for
// the longest time is forgotten, and begins with a full bucket again.
type limiter struct {
	rate     rate.Limit
	burst    int
	maxUsers int

	mu     sync.Mutex
	users  map[Owner]*list.Element
	recent list.List // of *bucket, the last heard of in front
}

type bucket struct {
	user    Owner
	limiter *rate.Limiter
}

func newLimiter(perSecond float64, burst, maxUsers int) *limiter {
	return &limiter{rate: rate.Limit(perSecond), burst: burst, maxUsers: maxUsers, users: map[Owner]*list.Element{}}
}

// wait takes one request of the user's, and returns zero, or says how long it is until there is one.
func (l *limiter) wait(user Owner, now time.Time) time.Duration {
	r := l.bucket(user).ReserveN(now, 1)
	delay := r.DelayFrom(now)
	if delay > 0 {
		r.CancelAt(now) // a refused request does not use up the next one
	}
	return delay
}

func (l *limiter) bucket(user Owner) *rate.Limiter {
	l.mu.Lock()
	defer l.mu.Unlock()
	if e, ok := l.users[user]; ok {
		l.recent.MoveToFront(e)
		return e.Value.(*bucket).limiter
	}
	if l.recent.Len() >= l.maxUsers {
		oldest := l.recent.Remove(l.recent.Back()).(*bucket)
		delete(l.users, oldest.user)
	}
	b := &bucket{user, rate.NewLimiter(l.rate, l.burst)}
	l.users[user] = l.recent.PushFront(b)
	return b.limiter
}
