package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"time"
)

// drillMutant is a guard that the drill must miss. Its faults are the ones that need the guard.
type drillMutant struct {
	name  string
	edits []edit
	args  []string
}

const (
	workersSteps = "workers/steps.go"
	steptxGo     = "workers/steplive.go"
)

func faults(names ...string) []string {
	args := []string{"--duration", "25s"}
	for _, name := range names {
		args = append(args, "--fault", name)
	}
	return args
}

var drillMutants = []drillMutant{
	{"the fence does not lock", one(statementGo, `lock := "for no key update of r"`, `lock := ""`), faults("lock")},
	{"the terminal write ignores the attempt", one(statementGo, attemptOfFence, `where = append(where, map[bool]string{true: "@attempt::bigint is not null", false: "r.attempt = @attempt::bigint"}[e == Succeed || e == FailTry])`), faults("stop", "stop in write", "blackhole")},
	{"steps have no receipt key", []edit{
		{stepGo, `case when receipt.outcome <> 'ok' then excluded.effect end`, `excluded.effect`},
		{stepStmtGo, `case when receipt.outcome <> 'ok' then excluded.effect end`, `excluded.effect`},
		{workersSteps, `if r, ok := byIndex[i]; ok && r.Outcome == receipts.OK {`, `if r, ok := byIndex[i]; ok && r.Outcome == receipts.OK && i < 0 {`},
	}, faults("kill")},
	{"the reaper takes live leases", []edit{
		{reapGo, "and r.lease_expires_at < (select clock_timestamp())", ""},
		{effectsGo, " and r.lease_expires_at < clock_timestamp()", ""},
	}, faults("kill")},
	{"leases are stamped with now()", one(statementGo, `"lease_expires_at = clock_timestamp() + @lease::interval"`, `"lease_expires_at = now() + @lease::interval"`), faults("lock")},
	{"a release does not raise the attempt", notRaisedBy("Release"), faults("sigterm")},
	{"the heartbeat ignores the attempt", one(keeperGo, "join weir.run r on r.id = a.id and r.attempt = a.attempt", "join weir.run r on r.id = a.id and a.attempt is not null"), faults("stop in beat")},
	{"no step has a deadline", []edit{
		{keeperGo, "and r.step_deadline_at > clock_timestamp()\n", "\n"},
		{keeperGo, "func() { h.end(ErrStepDeadline) }", "func() {}"},
	}, append(faults("kill"), "--kind", "order")},
	{"an unknown COMMIT is taken for done", one(steptxGo, "	if finished {\n		res, stop = t.committed(s, out, last)", "	if finished || !last {\n		res, stop = t.committed(s, out, last)"), append(faults("cut before commit"), "--kind", "order")},
	{"a payload can be changed", one(schemaSQL, "create trigger payload_is_frozen before update or delete", "create trigger payload_is_frozen before delete"), faults("tamper")},
	{"the heartbeat waits for locks", one(keeperGo, "order by r.id for no key update of r skip locked\n)\nupdate weir.run r set lease_expires_at", "order by r.id for no key update of r\n)\nupdate weir.run r set lease_expires_at"), faults("lock")},
}

// runDrills drills the build as it is, which must be green, and then each mutant.
func runDrills(ctx context.Context, match func(string) bool, verbose bool) int {
	tried, bad := 0, 0
	report := func(want, name string, m drillMutant) {
		began := time.Now()
		got, why, out := m.drill(ctx)
		if got != want {
			bad++
		}
		tried++
		fmt.Printf("%-10s %-45s %5.1fs  %s\n", got, name, time.Since(began).Seconds(), why)
		if verbose || got == broken {
			fmt.Println(out)
		}
	}
	report(green, "nothing is removed", drillMutant{args: []string{"--duration", "25s"}})
	for _, m := range drillMutants {
		if match(m.name) && ctx.Err() == nil {
			report(killed, m.name, m)
		}
	}
	if ctx.Err() != nil {
		fmt.Fprintln(os.Stderr, "mutants: interrupted")
		return 2
	}
	fmt.Printf("%d drills, %d not as they should be\n", tried, bad)
	if bad > 0 || tried == 1 {
		return 1
	}
	return 0
}

const green = "green"

// drill builds the worker with the guard removed and drills it. why is the first thing that the drill found.
func (m drillMutant) drill(ctx context.Context) (result, why, out string) {
	dir, err := os.MkdirTemp("", "weir-mutant-")
	if err != nil {
		return broken, "", err.Error()
	}
	defer os.RemoveAll(dir)
	overlay, _, err := mutant{edits: m.edits}.overlay(dir)
	if err != nil {
		return broken, "", err.Error()
	}
	program := filepath.Join(dir, "worker")
	build := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, "./cmd/worker")
	if said, err := build.CombinedOutput(); err != nil {
		return broken, "", string(said)
	}
	drill := exec.CommandContext(ctx, program, append([]string{"drill", "--json", "--seed", "7"}, m.args...)...) // #nosec G204 -- built just now
	drill.Cancel = func() error { return drill.Process.Signal(os.Interrupt) }
	drill.WaitDelay = time.Minute
	drill.Env = append(os.Environ(), "TMPDIR="+dir) // its logs and its history go with the mutant
	stdout, err := drill.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return broken, "", err.Error()
	}
	var found struct {
		OK     bool     `json:"ok"`
		Broken []string `json:"broken"`
	}
	if parseErr := json.Unmarshal(stdout, &found); parseErr != nil {
		said := ""
		if exit != nil {
			said = string(exit.Stderr)
		}
		return broken, "", fmt.Sprintf("the drill did not report: %v\n%s", parseErr, said)
	}
	switch {
	case found.OK && err == nil:
		return green, "", string(stdout)
	case len(found.Broken) > 0:
		return killed, found.Broken[0], string(stdout)
	}
	return broken, "", string(stdout)
}
