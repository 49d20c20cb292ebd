package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/internal/postgres"
	"github.com/weirqueue/weir/internal/postgres/pgtest"
)

// packages are those whose SQL and whose rules depend on the server.
var packages = []string{"./migrations/...", "./internal/fencing/...", "./internal/receipts/...", "./internal/doorbell/..."}

// try installs a version, sees that it is that version which serves, and runs the tests and the drill on it.
func try(ctx context.Context, cache string, v version) (r result) {
	r = result{version: v, served: notRun, tests: notRun, drill: notRun}
	began := time.Now()
	defer func() { r.took = time.Since(began) }()

	bin, err := install(ctx, cache, v.npm)
	if err != nil {
		r.err = fmt.Errorf("install %s: %w", v.npm, err)
		return r
	}
	// For the servers of this process, and of all that it starts.
	if r.err = os.Setenv("PG_BIN", bin); r.err != nil {
		return r
	}
	if r.served, r.err = ask(ctx, v.major); r.err != nil {
		return r
	}
	test := append([]string{"test", "-count=1", "-p=1", "-timeout=20m"}, packages...)
	var said [2]string
	var faults [2]error
	r.tests, said[0], faults[0] = goCommand(ctx, v, test...)
	r.drill, said[1], faults[1] = goCommand(ctx, v, "run", "./cmd/worker", "drill", "--duration", "20s", "--json")
	r.output, r.err = said[0]+said[1], errors.Join(faults[:]...)
	return r
}

// ask starts a server and has it say what it is: a matrix that tests the installed version five times is worth nothing.
func ask(ctx context.Context, major int) (served string, err error) {
	server, err := postgres.Start(ctx, postgres.Options{Ephemeral: true})
	if err != nil {
		return "-", err
	}
	defer func() { err = errors.Join(err, server.Close()) }()
	conn, err := pgx.Connect(ctx, server.URL("postgres"))
	if err != nil {
		return "-", err
	}
	defer func() { err = errors.Join(err, conn.Close(ctx)) }()
	var number string
	if err := conn.QueryRow(ctx, "show server_version_num").Scan(&number); err != nil {
		return "-", err
	}
	return check(number, major)
}

// check reads a server_version_num, such as 180004 of version 18.4.
func check(number string, major int) (served string, err error) {
	n, err := strconv.Atoi(number)
	if err != nil {
		return "-", fmt.Errorf("server_version_num is %q", number)
	}
	served = fmt.Sprintf("%d.%d", n/10000, n%10000)
	if n/10000 != major {
		return served, fmt.Errorf("version %s served, not %d", served, major)
	}
	return served, nil
}

// goCommand runs go at the module's root and returns a word for how it went, and what it said when it failed. Its tests ask
// their own server, too.
func goCommand(ctx context.Context, v version, args ...string) (word, said string, err error) {
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Env = append(os.Environ(), "DATABASE_URL=", pgtest.MajorVariable+"="+strconv.Itoa(v.major))
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	// A group of its own, which gets the signal as a whole: go alone would leave its tests behind.
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = 30 * time.Second
	if err := cmd.Run(); err != nil {
		return failed, out.String(), fmt.Errorf("go %s: %w", args[0], err)
	}
	return ok, "", nil
}
