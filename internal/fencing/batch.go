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
// column run is always there. A run must not be twice in a batch.
//
// Rows are locked in the order of their ids, and those that somebody else has locked are left out, as those whose fence
// is lost are: the caller writes what comes back without a row by itself.
func (m *Machine) Batch(name string, e Event, scope, final string, columns []Column, riders ...Rider) *Statement {
	columns = append([]Column{{"run", "uuid"}}, columns...)
	var arrays, names []string
	for _, c := range columns {
		arrays = append(arrays, fmt.Sprintf("@%s_list::%s[]", c.Name, c.Type))
		names = append(names, c.Name)
	}
	text := m.transitionCTE(e, scope) + joinRiders(riders) + "\n" + final
	text = replaceOnce(text, "from weir.run r\n", "from weir.run r join batch b on b.run = r.id\n")
	text = replaceOnce(text, "for no key update of r", "order by r.id for no key update of r skip locked")
	text = replaceOnce(text, "from locked where r.id = locked.id", "from locked join batch b on b.run = locked.id where r.id = locked.id")
	text = fromFenced.ReplaceAllString(text, "from fenced join batch b on b.run = fenced.id")
	for _, c := range columns {
		text = regexp.MustCompile(`@`+c.Name+`\b`).ReplaceAllString(text, "b."+c.Name)
	}
	return Compile(m.Name+"/"+name, fmt.Sprintf("with batch as (\n    select * from unnest(%s) as u(%s)\n), %s",
		strings.Join(arrays, ", "), strings.Join(names, ", "), text))
}

var fromFenced = regexp.MustCompile(`\bfrom fenced\b`)

// replaceOnce stops the program when a text is not there once: a batch without its join would be one without its fence.
func replaceOnce(text, old, replacement string) string {
	if n := strings.Count(text, old); n != 1 {
		panic(fmt.Sprintf("fencing: %q is %d times in a statement, not once:\n%s", old, n, text))
	}
	return strings.Replace(text, old, replacement, 1)
}
