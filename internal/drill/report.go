package drill

import (
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// Report is what a drill found, as `drill --json` prints it.
type Report struct {
	Runs             int     `json:"runs"`
	Steps            int     `json:"steps"`
	Effects          int     `json:"effects"`
	DuplicateEffects int     `json:"duplicate_effects"`
	LostRuns         int     `json:"lost_runs"`
	StaleCommits     int     `json:"stale_commits"`
	Takeovers        int     `json:"takeovers"`
	FenceRefusals    int     `json:"fence_refusals"`
	Kills            int     `json:"kills"`
	Stops            int     `json:"stops"`
	Cuts             int     `json:"cuts"`
	MaxRecoveryS     float64 `json:"max_recovery_s"`
	// MaxKillRecoveryS is that after SIGKILL alone.
	MaxKillRecoveryS float64 `json:"max_kill_recovery_s"`
	// Unprovoked are takeovers from owners that nothing was done to.
	Unprovoked int `json:"unprovoked_takeovers"`
	// StalledS is for how long the machine did not keep up: recoveries are measured without it.
	StalledS  float64        `json:"stalled_s"`
	Faults    map[string]int `json:"faults"`
	DurationS float64        `json:"duration_s"`
	Seed      uint64         `json:"seed"`
	OK        bool           `json:"ok"`
	// Broken says what is not as the contract has it, and More how many such things there are beyond these.
	Broken []string `json:"broken,omitempty"`
	More   int      `json:"more,omitempty"`
	// History is the file with every change, when it was kept.
	History string `json:"history,omitempty"`
	// Again runs this seed again.
	Again string `json:"again"`
}

const maxBroken = 30

func (r *Report) fault(format string, args ...any) {
	if len(r.Broken) >= maxBroken {
		r.More++
		return
	}
	r.Broken = append(r.Broken, fmt.Sprintf(format, args...))
}

// thresholds are what must have happened in a minute: a drill that broke too little proved nothing.
var thresholds = []struct {
	what      string
	perMinute int
	got       func(*Report) int
}{
	{"kills", 20, func(r *Report) int { return r.Kills }},
	{"stops", 20, func(r *Report) int { return r.Stops }},
	{"takeovers", 50, func(r *Report) int { return r.Takeovers }},
	{"fence refusals", 20, func(r *Report) int { return r.FenceRefusals }},
}

// tooLittle begins what is said of a drill in which nothing need be broken.
const tooLittle = "too little landed to prove anything: "

// prove adds a fault for everything that happened too rarely.
func (r *Report) prove(d time.Duration) {
	for _, t := range thresholds {
		if least := max(1, int(float64(t.perMinute)*d.Minutes())); t.got(r) < least {
			r.fault(tooLittle+"%d %s in %s, and at least %d are needed: drill for longer, or with steps that take longer", t.got(r), t.what, d, least)
		}
	}
}

// verdict is why a drill is not green.
func (r *Report) verdict() string {
	if r.More == 0 && !slices.ContainsFunc(r.Broken, func(b string) bool { return !strings.HasPrefix(b, tooLittle) }) {
		return "nothing is broken, but too little landed to prove that"
	}
	return "not everything is as the contract says"
}

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, row := range []struct {
		name  string
		value any
	}{
		{"runs", r.Runs},
		{"steps", r.Steps},
		{"effects", r.Effects},
		{"duplicate effects", r.DuplicateEffects},
		{"lost runs", r.LostRuns},
		{"stale commits", r.StaleCommits},
		{"takeovers", r.Takeovers},
		{"fence refusals", r.FenceRefusals},
		{"kills", r.Kills},
		{"stops", r.Stops},
		{"cuts", r.Cuts},
		{"unprovoked takeovers", r.Unprovoked},
		{"slowest recovery", fmt.Sprintf("%.2f s", r.MaxRecoveryS)},
		{"slowest after SIGKILL", fmt.Sprintf("%.2f s", r.MaxKillRecoveryS)},
	} {
		fmt.Fprintf(t, "%s\t%v\n", row.name, row.value)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	for _, b := range r.Broken {
		if !strings.HasPrefix(b, tooLittle) {
			b = "BROKEN: " + b
		}
		fmt.Fprintln(w, b)
	}
	if r.More > 0 {
		fmt.Fprintf(w, "BROKEN: and %d more\n", r.More)
	}
	if r.History != "" {
		fmt.Fprintln(w, "every change is in", r.History)
	}
	if r.OK {
		fmt.Fprintln(w, "everything is as the contract says")
	}
	fmt.Fprintln(w, "the same seed again:", r.Again)
	return nil
}
