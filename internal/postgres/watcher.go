package postgres

import (
	"context"
	"fmt"
	"os/exec"
)

// watchScript stops the server when its last user is gone, for the users that end without Close: killed, panicked, or a
// test binary, which has no last moment. It waits for the lock "alive", which the users share, then decides under the
// gate, as Close does. The kernel gives up a dead user's locks, so there is nothing to poll and nothing to trust.
//
//	$1 directory   $2 pg_ctl   $3 stop mode   $4 what to remove afterwards, or nothing
const watchScript = `
exec 8>>"$1/watch" || exit
flock -n -x 8 || exit 0
while flock -x "$1/alive" true; do
	exec 9<"$1/gate" 7<"$1/users" || exit
	flock -x 9
	if flock -n -x 7; then
		# pg_ctl would signal whoever has the number now that a crashed server left in the file.
		pid=$(head -n 1 "$1/data/postmaster.pid")
		if [ ! -e /proc/self/cwd ] || [ "$(readlink "/proc/$pid/cwd")" = "$1/data" ]; then
			"$2" stop -s -w -t 60 -m "$3" -D "$1/data"
		fi
		[ -z "$4" ] || rm -rf "$4"
		exec 8<&- # before the gate: who comes next must be able to start the next watcher
		exit
	fi
	exec 9<&- 7<&- # somebody came in the meantime
done`

// watch makes sure that a watcher runs. Without the program flock(1) there is none, and a server whose last user was
// killed runs on until somebody uses and closes it again.
func (c *cluster) watch(ctx context.Context, ephemeral bool) error {
	if _, err := exec.LookPath("flock"); err != nil {
		return nil
	}
	mode, remove := Fast, ""
	if ephemeral {
		mode, remove = Immediate, c.dir
	}
	// The inner shell in the background belongs to nobody here, so there is no process to wait for.
	cmd := c.as.command(ctx, "/bin/sh", "-c", `sh -c "$0" sh "$@" </dev/null >/dev/null 2>&1 &`,
		watchScript, c.dir, c.bin.path("pg_ctl"), string(mode), remove)
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("start the watcher of PostgreSQL: %w", err)
	}
	return nil
}
