package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"
)

// lockPoll is how often a lock that somebody else holds is tried again.
const lockPoll = 10 * time.Millisecond

// A lock is a lock on a file between processes (flock). The kernel releases it when the process ends, however that is.
type lock struct{ file *os.File }

func openLock(path string, as account) (*lock, error) {
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	if err := as.own(path); err != nil {
		file.Close()
		return nil, err
	}
	return &lock{file}, nil
}

// try takes the lock if that is possible at once. how is syscall.LOCK_SH or LOCK_EX.
func (l *lock) try(how int) (bool, error) {
	for {
		switch err := syscall.Flock(int(l.file.Fd()), how|syscall.LOCK_NB); {
		case err == nil:
			return true, nil
		case errors.Is(err, syscall.EWOULDBLOCK):
			return false, nil
		case !errors.Is(err, syscall.EINTR):
			return false, fmt.Errorf("lock %s: %w", l.file.Name(), err)
		}
	}
}

// take waits for the lock. It tries again and again, because a blocking flock does not end with ctx.
func (l *lock) take(ctx context.Context, how int) error {
	for {
		ok, err := l.try(how)
		if ok || err != nil {
			return err
		}
		if err := pause(ctx, lockPoll); err != nil {
			return fmt.Errorf("wait for the lock %s: %w", l.file.Name(), err)
		}
	}
}

// unlock gives the lock up; it can be taken again.
func (l *lock) unlock() error { return syscall.Flock(int(l.file.Fd()), syscall.LOCK_UN) }

// release gives the lock up for good. The unlock is explicit: a child that is being forked at this moment still has the
// descriptor, and with it a lock that was only closed.
func (l *lock) release() error { return errors.Join(l.unlock(), l.file.Close()) }

func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-timer.C:
		return nil
	}
}
