package demo

import (
	"context"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"github.com/weirqueue/weir/jobs"
)

// Report is what happened, as `demo --json` prints it.
type Report struct {
	Runs          []RunReport `json:"runs"`
	MailsReceived int         `json:"mails_received"`
	// Takeovers is how many leases ran out and were ended, on runs that others then finished.
	Takeovers int  `json:"takeovers"`
	OK        bool `json:"ok"`
	// Faults say what is not as the contract has it.
	Faults []string `json:"faults,omitempty"`
}

// RunReport is one run with its receipts.
type RunReport struct {
	ID       jobs.RunID     `json:"id"`
	Kind     string         `json:"kind"`
	Status   jobs.Status    `json:"status"`
	Attempt  int64          `json:"attempt"`
	Failures int            `json:"failures"`
	Reaps    int            `json:"reaps"`
	Receipts []jobs.Receipt `json:"receipts"`
	title    string
}

func (d *Demo) report(ctx context.Context, played []playedLetter, plan *playedPlan, reset *playedReset) (*Report, error) {
	r := &Report{MailsReceived: d.sink.Count()}
	wantMails := 0
	for _, p := range played {
		run, err := d.client.Get(ctx, p.run)
		if err != nil {
			return nil, err
		}
		receipts, err := d.client.Receipts(ctx, p.run)
		if err != nil {
			return nil, err
		}
		tries, err := d.client.Tries(ctx, p.run)
		if err != nil {
			return nil, err
		}
		r.Runs = append(r.Runs, RunReport{
			ID: run.ID, Kind: run.Kind, Status: run.Status, Attempt: run.Attempt, Failures: run.Failures, Reaps: run.Reaps,
			Receipts: receipts, title: p.title,
		})
		wantMails += p.mails
		r.check(p, run, receipts, tries)
		r.checkMails(p, d.mailsFor(p.run))
	}
	if err := d.reportPlan(ctx, r, plan); err != nil {
		return nil, err
	}
	if err := d.reportReset(ctx, r, reset); err != nil {
		return nil, err
	}
	if r.MailsReceived != wantMails {
		r.fault("the mail server took %d mails, not %d", r.MailsReceived, wantMails)
	}
	if r.Takeovers == 0 {
		r.fault("no run was taken over")
	}
	r.OK = len(r.Faults) == 0
	return r, nil
}

func (r *Report) fault(format string, args ...any) {
	r.Faults = append(r.Faults, fmt.Sprintf(format, args...))
}

func (r *Report) check(p playedLetter, run *jobs.Run, receipts []jobs.Receipt, tries []jobs.Try) {
	if run.Status != p.want {
		r.fault("the delivery to %s is %s, not %s", p.to, run.Status, p.want)
	}
	want := "ok"
	if p.want != jobs.StatusSent {
		want = "failed"
	}
	if len(receipts) != 1 || receipts[0].Outcome != want {
		r.fault("the delivery to %s has not exactly one receipt, %s: %+v", p.to, want, receipts)
	}
	reaped, failed := 0, 0
	for _, t := range tries {
		switch t.How {
		case "reaped":
			reaped++
		case "failed":
			failed++
		}
	}
	if run.Terminal() {
		r.Takeovers += reaped
	}
	if failed != run.Failures {
		r.fault("the delivery to %s counts %d failures and has records of %d", p.to, run.Failures, failed)
	}
	switch p.to {
	case retriedTo:
		if failed != 1 {
			r.fault("the delivery to %s failed %d times before it was sent, not once", p.to, failed)
		}
	case killedTo:
		if reaped == 0 || failed != 0 {
			r.fault("the delivery to %s was taken over %d times and failed %d times, not at least once and never", p.to, reaped, failed)
		}
	}
}

type received struct{ subject, text string }

// mailsFor returns what the server took under the run's Message-ID.
func (d *Demo) mailsFor(id jobs.RunID) []received {
	var out []received
	for _, m := range d.sink.Mails() {
		if !strings.Contains(m.MessageID, id.String()) {
			continue
		}
		subject, text, err := decode(m.Raw)
		if err != nil {
			subject = "unreadable: " + err.Error()
		}
		out = append(out, received{subject, text})
	}
	return out
}

func (r *Report) checkMails(p playedLetter, mails []received) {
	if len(mails) != p.mails {
		r.fault("the mail server took %d mails for %s, not %d", len(mails), p.to, p.mails)
	}
	for _, m := range mails {
		if m.subject != p.subject || m.text != p.text {
			r.fault("the mail to %s is not what was sent: %q, %q", p.to, m.subject, m.text)
		}
	}
}

// Print writes the report as a table.
func (r *Report) Print(w io.Writer) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	fmt.Fprintln(t, "RUN\tKIND\tSTATUS\tATTEMPT\tFAILURES\tRECEIPTS\tWHAT IT SHOWS")
	for _, run := range r.Runs {
		var receipts []string
		for _, rc := range run.Receipts {
			receipts = append(receipts, fmt.Sprintf("%d %s: %s (attempt %d)", rc.StepIndex, rc.StepName, rc.Outcome, rc.Attempt))
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%d\t%d\t%s\t%s\n", run.ID, run.Kind, run.Status, run.Attempt, run.Failures,
			strings.Join(receipts, ", "), run.title)
	}
	if err := t.Flush(); err != nil {
		return err
	}
	fmt.Fprintf(w, "\n%s received, %s\n", plural(r.MailsReceived, "mail"), plural(r.Takeovers, "takeover"))
	for _, f := range r.Faults {
		fmt.Fprintln(w, "NOT AS IT SHOULD BE:", f)
	}
	if r.OK {
		fmt.Fprintln(w, "everything is as the contract says")
	}
	return nil
}
