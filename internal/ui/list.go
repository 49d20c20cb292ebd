package ui

import (
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/weirqueue/weir/jobs"
)

// Each kind has a vocabulary of statuses; an application's own kinds have the last one.
var (
	deliveryStatuses = []jobs.Status{"pending", "processing", "sent", "failed", "dead"}
	planStatuses     = []jobs.Status{"pending", "approved", "executing", "executed", "failed", "rejected", "expired"}
	stepsStatuses    = []jobs.Status{"queued", "running", "succeeded", "failed", "canceled"}
)

func statusesOf(kind string) []jobs.Status {
	switch kind {
	case jobs.KindDelivery:
		return deliveryStatuses
	case "plan":
		return planStatuses
	}
	return stepsStatuses
}

// runsBody is the page of runs.
type runsBody struct {
	Kinds, Statuses []choice
	Runs            []*jobs.Run
	Filtered        bool
	Newest, Older   string // links; empty where there is nothing
}

// choice is a filter as a link.
type choice struct {
	Label   string
	Link    string
	Current bool
}

func (p *pages) listRuns(w http.ResponseWriter, r *http.Request) error {
	filter, err := parseFilter(r.URL.Query())
	if err != nil {
		return err
	}
	page, err := p.jobs.List(r.Context(), filter)
	if err != nil {
		return err
	}
	now, err := p.now(r.Context())
	if err != nil {
		return err
	}
	body := &runsBody{Runs: page.Runs, Filtered: len(filter.Kinds)+len(filter.Statuses) > 0}
	body.offer(filter, page.Runs)
	if filter.After != (jobs.RunID{}) {
		body.Newest = linkTo(filter.Kinds, filter.Statuses, jobs.RunID{})
	}
	body.Older = ""
	if page.Next != (jobs.RunID{}) {
		body.Older = linkTo(filter.Kinds, filter.Statuses, page.Next)
	}
	return p.render(w, r, http.StatusOK, "runs", frame{Title: "Runs", Live: true, Now: now, Body: body})
}

// offer makes the links of the filters. A link of one filter keeps the other, where the statuses are still the kind's.
func (b *runsBody) offer(f jobs.Filter, runs []*jobs.Run) {
	kinds := []string{jobs.KindDelivery}
	kinds = append(kinds, f.Kinds...)
	for _, run := range runs {
		kinds = append(kinds, run.Kind)
	}
	slices.Sort(kinds)
	kinds = slices.Compact(kinds)

	b.Kinds = append(b.Kinds, choice{"All kinds", linkTo(nil, f.Statuses, jobs.RunID{}), len(f.Kinds) == 0})
	for _, kind := range kinds {
		keep := f.Statuses
		if slices.ContainsFunc(keep, func(s jobs.Status) bool { return !slices.Contains(statusesOf(kind), s) }) {
			keep = nil
		}
		b.Kinds = append(b.Kinds, choice{kindName(kind), linkTo([]string{kind}, keep, jobs.RunID{}), slices.Equal(f.Kinds, []string{kind})})
	}
	if len(f.Kinds) > 0 {
		kinds = f.Kinds
	}
	b.Statuses = append(b.Statuses, choice{"Any status", linkTo(f.Kinds, nil, jobs.RunID{}), len(f.Statuses) == 0})
	for _, status := range vocabulary(kinds, f.Statuses) {
		one := []jobs.Status{status}
		b.Statuses = append(b.Statuses, choice{string(status), linkTo(f.Kinds, one, jobs.RunID{}), slices.Equal(f.Statuses, one)})
	}
}

// vocabulary is the statuses of kinds, and those that are asked for, each once.
func vocabulary(kinds []string, asked []jobs.Status) []jobs.Status {
	var list []jobs.Status
	for _, kind := range kinds {
		list = append(list, statusesOf(kind)...)
	}
	list = append(list, asked...)
	seen := map[jobs.Status]bool{}
	return slices.DeleteFunc(list, func(s jobs.Status) bool {
		again := seen[s]
		seen[s] = true
		return again
	})
}

func parseFilter(query url.Values) (jobs.Filter, error) {
	f := jobs.Filter{Kinds: nonEmpty(query["kind"])}
	for _, kind := range f.Kinds {
		if len(kind) > 100 || !utf8.ValidString(kind) || strings.ContainsFunc(kind, unicode.IsControl) {
			return f, &jobs.InvalidError{Field: "kind", Value: kind, Bound: "the name of a kind, at most 100 bytes"}
		}
	}
	all := vocabulary([]string{jobs.KindDelivery, "plan", "own"}, nil)
	for _, s := range nonEmpty(query["status"]) {
		if !slices.Contains(all, jobs.Status(s)) {
			return f, &jobs.InvalidError{Field: "status", Value: s, Bound: fmt.Sprintf("one of %v", all)}
		}
		f.Statuses = append(f.Statuses, jobs.Status(s))
	}
	if after := query.Get("after"); after != "" {
		id, err := jobs.ParseRunID(after)
		if err != nil {
			return f, err
		}
		f.After = id
	}
	return f, nil
}

func nonEmpty(list []string) []string {
	return slices.DeleteFunc(slices.Clone(list), func(s string) bool { return s == "" })
}

func linkTo(kinds []string, statuses []jobs.Status, after jobs.RunID) string {
	query := url.Values{}
	for _, kind := range kinds {
		query.Add("kind", kind)
	}
	for _, status := range statuses {
		query.Add("status", string(status))
	}
	if after != (jobs.RunID{}) {
		query.Set("after", after.String())
	}
	if len(query) == 0 {
		return "/"
	}
	return "/?" + query.Encode()
}
