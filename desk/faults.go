package desk

import (
	"errors"
	"slices"
	"strings"
)

// faults collects what is wrong with a request, up to a bound: a bad spreadsheet has a thousand bad cells.
type faults struct{ list []error }

const maxFaults = 20

func (f *faults) add(field, value, bound string) {
	if len(f.list) < maxFaults {
		f.list = append(f.list, invalid(field, value, bound))
	}
}

func (f *faults) err() error { return errors.Join(f.list...) }

// only refuses members that an object may not have: a client that misspells one learns it.
func (f *faults) only(field string, n *node, names ...string) {
	for i := range n.members {
		if name := n.members[i].name; !slices.Contains(names, name) {
			f.add(field+"."+shorten(name), string(n.members[i].value.raw), "absent; known are "+strings.Join(names, ", "))
		}
	}
}

// kind wants a value that is there and of one of the kinds.
func (f *faults) kind(field string, n *node, kinds ...kind) bool {
	if n.is(kinds...) {
		return true
	}
	shown := ""
	if n != nil {
		shown = string(n.raw)
	}
	f.add(field, shown, oneOf(kinds))
	return false
}

// optional wants a value of the kind, or none.
func (f *faults) optional(field string, n *node, kinds ...kind) bool {
	return n != nil && f.kind(field, n, kinds...)
}
