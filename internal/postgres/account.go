package postgres

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// account is the user that PostgreSQL's programs run as. They refuse to run as root.
type account struct {
	name     string
	uid, gid int
	switched bool // it is not the user of this process
}

// serverAccount is this process's own user, or for root the user postgres, or nobody where there is none.
func serverAccount() (account, error) {
	if uid := os.Geteuid(); uid != 0 {
		return account{name: "#" + strconv.Itoa(uid), uid: uid, gid: os.Getegid()}, nil
	}
	return firstUser("postgres", "nobody")
}

// firstUser is the first of these users that the machine has.
func firstUser(names ...string) (account, error) {
	for _, name := range names {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, errUID := strconv.Atoi(u.Uid)
		gid, errGID := strconv.Atoi(u.Gid)
		if err := errors.Join(errUID, errGID); err != nil {
			return account{}, fmt.Errorf("user %s: %w", name, err)
		}
		return account{name: name, uid: uid, gid: gid, switched: true}, nil
	}
	return account{}, fmt.Errorf("PostgreSQL does not run as root, and this machine has no user %s to run it as", strings.Join(names, " or "))
}

// command makes a program run as the account, in a session of its own (so that Ctrl-C in a terminal reaches the caller
// alone, who then stops the server in order) and in a directory that the account can enter.
func (a account) command(ctx context.Context, program string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir = "/"
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if a.switched {
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: uint32(a.uid), Gid: uint32(a.gid)}
	}
	return cmd
}

// home is the directory that holds the account's clusters. Root uses a system directory, because the account cannot
// enter root's own; anybody else uses the cache directory.
func (a account) home() (string, error) {
	shared := filepath.Join("/var/tmp", "weir-postgres-"+strconv.Itoa(a.uid))
	var candidates []string
	if a.switched {
		candidates = []string{filepath.Join("/var/lib/weir", "postgres-"+strconv.Itoa(a.uid)), shared}
	} else {
		if cache, err := os.UserCacheDir(); err == nil {
			candidates = append(candidates, filepath.Join(cache, "weir", "postgres"))
		}
		candidates = append(candidates, shared)
	}
	var faults []error
	for _, dir := range candidates {
		err := os.MkdirAll(filepath.Dir(dir), 0o755)
		if err == nil {
			err = a.mkdir(dir)
		}
		if err == nil {
			return dir, nil
		}
		faults = append(faults, err)
	}
	return "", fmt.Errorf("no directory for PostgreSQL's data: %w", errors.Join(faults...))
}

// mkdir makes a directory for the account alone. One that is there already must be the account's: in a directory that
// everybody can write to, somebody else may have made it.
func (a account) mkdir(dir string) error {
	switch err := os.Mkdir(dir, 0o700); {
	case err == nil:
		return a.own(dir)
	case !errors.Is(err, os.ErrExist):
		return err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return err
	}
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || !ok || (int(stat.Uid) != a.uid && int(stat.Uid) != os.Geteuid()) {
		return fmt.Errorf("%s belongs to somebody else than user %s", dir, a.name)
	}
	// The process that made it may have ended before it could give it away.
	if err := os.Chmod(dir, 0o700); err != nil {
		return err
	}
	return a.own(dir)
}

// own gives a file or directory to the account.
func (a account) own(path string) error {
	if !a.switched {
		return nil
	}
	return os.Lchown(path, a.uid, a.gid)
}
