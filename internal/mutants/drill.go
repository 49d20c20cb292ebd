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
	// older makes a second build, of which some worker processes are.
	older []edit
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
	{name: "the fence does not lock", edits: []edit{
		{statementGo, `lock := "for no key update of r"`, `lock := ""`},
		{batchGo, "(%s for no key update of r skip locked) l", "(%s) l"},
	}, args: faults("lock")},
	{name: "the terminal write ignores the attempt", edits: one(statementGo, attemptOfFence, `where = append(where, map[bool]string{true: "@attempt::bigint is not null", false: "r.attempt = @attempt::bigint"}[e == Succeed || e == FailTry])`), args: faults("stop", "stop in write", "blackhole")},
	{name: "steps have no receipt key", edits: []edit{
		{stepGo, `case when receipt.outcome <> 'ok' then excluded.effect end`, `excluded.effect`},
		{stepStmtGo, `case when receipt.outcome <> 'ok' then excluded.effect end`, `excluded.effect`},
		{workersSteps, `if r, ok := byIndex[i]; ok && r.Outcome == receipts.OK {`, `if r, ok := byIndex[i]; ok && r.Outcome == receipts.OK && i < 0 {`},
	}, args: faults("kill")},
	{name: "the reaper takes live leases", edits: []edit{
		{reapGo, "and r.lease_expires_at < (select clock_timestamp())", ""},
		{effectsGo, " and r.lease_expires_at < clock_timestamp()", ""},
	}, args: faults("kill")},
	{name: "leases are stamped with now()", edits: one(statementGo, `"lease_expires_at = clock_timestamp() + @lease::interval"`, `"lease_expires_at = now() + @lease::interval"`), args: faults("lock")},
	{name: "a release does not raise the attempt", edits: notRaisedBy("Release"), args: faults("sigterm")},
	{name: "the heartbeat ignores the attempt", edits: one(keeperGo, "join weir.run r on r.id = a.id and r.attempt = a.attempt", "join weir.run r on r.id = a.id and a.attempt is not null"), args: faults("stop in beat")},
	{name: "no step has a deadline", edits: []edit{
		{keeperGo, "and r.step_deadline_at > clock_timestamp()\n", "\n"},
		{"internal/fencing/held.go", "if h.deadline.Before(h.lasts) {", "if h.proof.IsZero() {"},
	}, args: append(faults("tamper"), "--kind", "order")},
	{name: "an unknown COMMIT is taken for done", edits: one(steptxGo, "	if finished {\n		res, stop = t.committed(s, out, last)", "	if finished || !last {\n		res, stop = t.committed(s, out, last)"), args: append(faults("cut before commit"), "--kind", "order")},
	{name: "a payload can be changed", edits: one(schemaSQL, "create trigger payload_is_frozen before update or delete", "create trigger payload_is_frozen before delete"), args: faults("tamper")},
	{name: "the heartbeat waits for locks", edits: one(keeperGo, "order by r.id for no key update of r skip locked\n)\nupdate weir.run r set lease_expires_at", "order by r.id for no key update of r\n)\nupdate weir.run r set lease_expires_at"), args: faults("lock")},
}

// olderBuild is a mixed fleet: some of its processes know only one of the kinds.
var olderBuild = drillMutant{
	name: "an older build without the newest kinds", args: []string{"--duration", "40s"}, older: one("internal/drill/drill.go",
		"return []Subject{newDeliveries(seed), newOrders(seed), newResets(seed), newPlans(seed)}", "return []Subject{newDeliveries(seed)}"),
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
	if match(olderBuild.name) {
		report(green, olderBuild.name, olderBuild)
	}
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
	program := filepath.Join(dir, "worker")
	if said, err := buildWorker(ctx, dir, program, m.edits); err != nil {
		return broken, "", said
	}
	args := append([]string{"drill", "--json", "--seed", "7"}, m.args...)
	if m.older != nil {
		older := filepath.Join(dir, "older")
		if said, err := buildWorker(ctx, dir, older, m.older); err != nil {
			return broken, "", said
		}
		args = append(args, "--other", older)
	}
	drill := exec.CommandContext(ctx, program, args...) // #nosec G204 -- built just now
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

// buildWorker builds the worker with the edits.
func buildWorker(ctx context.Context, dir, program string, edits []edit) (said string, err error) {
	overlay, _, err := mutant{edits: edits}.overlay(dir)
	if err != nil {
		return err.Error(), err
	}
	out, err := exec.CommandContext(ctx, "go", "build", "-overlay", overlay, "-o", program, "./cmd/worker").CombinedOutput()
	return string(out), err
}
