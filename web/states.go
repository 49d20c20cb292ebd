package web

import (
	"fmt"
	"slices"
	"strings"

	"github.com/dop251/goja"
	"github.com/evanw/esbuild/pkg/api"
)

// StatesDoc is where the drawing of the session's states is committed, from this directory.
const StatesDoc = "../docs/session-states.md"

// transition is a row of session/table.ts, with all the states that have it.
type transition struct {
	from []string
	transitionKey
}

type transitionKey struct {
	on, to, then string
}

// transitions reads the table by running it.
func transitions() ([]transition, error) {
	code, err := bundle(api.BuildOptions{EntryPoints: []string{"session/table.ts"}, Format: api.FormatIIFE, GlobalName: "mod"})
	if err != nil {
		return nil, err
	}
	vm := goja.New()
	if _, err := vm.RunScript("table.ts", string(code)); err != nil {
		return nil, fmt.Errorf("web: run session/table.ts: %w", err)
	}
	table := vm.Get("mod").ToObject(vm).Get("table").ToObject(vm)
	var out []transition
	at := map[transitionKey]int{}
	for _, from := range table.Keys() {
		rows := table.Get(from).ToObject(vm)
		for _, on := range rows.Keys() {
			row := rows.Get(on).ToObject(vm)
			key := transitionKey{on: on, to: "=", then: row.Get("0").ToObject(vm).Get("name").String()}
			if to := row.Get("1"); to != nil {
				key.to = to.String()
			}
			i, ok := at[key]
			if !ok {
				i = len(out)
				at[key] = i
				out = append(out, transition{transitionKey: key})
			}
			out[i].from = append(out[i].from, from)
		}
	}
	return out, nil
}

// States draws the states of a session, from its table.
func States() ([]byte, error) {
	rows, err := transitions()
	if err != nil {
		return nil, err
	}
	var b strings.Builder
	b.WriteString(`# The states of a document session

<!-- Generated from web/session/table.ts. Do not edit; run go generate ./web -->

What happens to a [session](session-guide.md) is first brought down to one of the words below, such as "saved" or "savedMore" for a
success without and with newer edits ([input.ts](../web/session/input.ts)); the table then says where that leads, and what is done on
the way ([actions.ts](../web/session/actions.ts)). What is in no row changes nothing. "Clean" is the only state of which a page says
"Saved".

` + "```mermaid\nstateDiagram-v2\n  [*] --> loading\n")
	// One arrow for each pair of states, with all its words.
	arrows, order := map[string][]string{}, []string{}
	for _, r := range rows {
		for _, from := range r.from {
			if r.to == "=" || r.to == from {
				continue
			}
			key := from + " --> " + r.to
			if arrows[key] == nil {
				order = append(order, key)
			}
			if !slices.Contains(arrows[key], r.on) {
				arrows[key] = append(arrows[key], r.on)
			}
		}
	}
	for _, key := range order {
		fmt.Fprintf(&b, "  %s: %s\n", key, strings.Join(arrows[key], ", "))
	}
	b.WriteString("  closed --> [*]\n```\n\n| from | on | to | does |\n| --- | --- | --- | --- |\n")
	for _, r := range rows {
		to := r.to
		if to == "=" {
			to = "the same"
		}
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", strings.Join(r.from, ", "), r.on, to, r.then)
	}
	return []byte(b.String()), nil
}
