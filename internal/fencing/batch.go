package fencing

import (
	"fmt"
	"regexp"
	"strings"
)

// Column is a parameter that differs between the elements of a batch: its name, and its type in PostgreSQL.
type Column struct{ Name, Type string }

// Batch composes the statement of one event for many runs at once. It is Transition's text, with the named columns taken
// from arrays instead of parameters, so each element is fenced, stamped and recorded exactly as if it were alone. The
// column run is always there: the caller sorts by it, and has no run twice.
//
// Rows are locked in that order, and those that somebody else has locked are left out, as those whose fence is lost
// are: the caller writes what comes back without a row by itself.
//
// Each run is looked up by its id, one after the other, and takes its element's columns along. A join of the batch with
// the table is at the mercy of statistics: right after a burst of enqueues it was a sequential scan.
func (m *Machine) Batch(name string, e Event, scope, final string, columns []Column, riders ...Rider) *Statement {
	arrays, names, carried := []string{"@run_list::uuid[]"}, []string{"run"}, []string{}
	for _, c := range columns {
		arrays = append(arrays, fmt.Sprintf("@%s_list::%s[]", c.Name, c.Type))
		names = append(names, "b_"+c.Name)
		carried = append(carried, "locked.b_"+c.Name)
	}
	locked, fenced, ok := strings.Cut(m.transitionCTE(e, scope), "), fenced as (")
	if !ok {
		panic("fencing: a transition without its fence")
	}
	locked = replaceOnce(locked, "locked as (", "locked as (\n    select l.*, b.* from batch b cross join lateral (")
	locked = replaceOnce(locked, "for no key update of r", "for no key update of r skip locked) l")
	fenced = replaceOnce(fenced, "returning r.*", strings.Join(append([]string{"returning r.*"}, carried...), ", "))
	rest := joinRiders(riders) + "\n" + final
	columns = append([]Column{{Name: "run"}}, columns...)
	locked, fenced, rest = fromBatch(locked, "b", columns), fromBatch(fenced, "locked", columns), fromBatch(rest, "fenced", columns)
	return Compile(m.Name+"/"+name, fmt.Sprintf("with batch as (\n    select * from unnest(%s) as u(%s)\n), %s), fenced as (%s%s",
		strings.Join(arrays, ", "), strings.Join(names, ", "), locked, fenced, rest))
}

// fromBatch takes the columns from a relation instead of from parameters.
func fromBatch(text, relation string, columns []Column) string {
	for _, c := range columns {
		column := relation + ".b_" + c.Name
		if c.Name == "run" {
			column = map[string]string{"b": "b.run", "locked": "locked.run", "fenced": "fenced.id"}[relation]
		}
		text = regexp.MustCompile(`@`+c.Name+`\b`).ReplaceAllString(text, column)
	}
	return text
}

// replaceOnce stops the program when a text is not there once: a batch without its lock would be one without its fence.
func replaceOnce(text, old, replacement string) string {
	if n := strings.Count(text, old); n != 1 {
		panic(fmt.Sprintf("fencing: %q is %d times in a statement, not once:\n%s", old, n, text))
	}
	return strings.Replace(text, old, replacement, 1)
}
