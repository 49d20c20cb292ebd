package postgres

import (
	"context"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

const ephemeralPrefix = "ephemeral-"

// removeStale removes ephemeral clusters whose owner was killed and that no watcher removed. One that is being made has
// no users yet either, so the young ones are left alone. What cannot be removed now is left for the next time.
func removeStale(ctx context.Context, home string, as account) {
	dirs, _ := filepath.Glob(filepath.Join(home, ephemeralPrefix+"*"))
	for _, dir := range dirs {
		info, err := os.Stat(dir)
		if err != nil || time.Since(info.ModTime()) < startTimeout {
			continue
		}
		users, err := openLock(filepath.Join(dir, "users"), as)
		if err != nil {
			continue
		}
		if alone, _ := users.try(syscall.LOCK_EX); alone {
			for _, pid := range processesIn(filepath.Join(dir, "data")) {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
			_ = os.RemoveAll(dir)
		}
		_ = users.release()
		if ctx.Err() != nil {
			return
		}
	}
}
