package desk

import (
	"crypto/sha256"
	"slices"
	"strings"
)

// compact appends the value without white space between tokens, and otherwise as it was sent.
func (n *node) compact(b []byte) []byte {
	switch n.kind {
	case array:
		b = append(b, '[')
		for i := range n.items {
			if i > 0 {
				b = append(b, ',')
			}
			b = n.items[i].compact(b)
		}
		return append(b, ']')
	case object:
		b = append(b, '{')
		for i := range n.members {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendText(b, n.members[i].name), ':')
			b = n.members[i].value.compact(b)
		}
		return append(b, '}')
	case text:
		return appendText(b, n.text)
	case null, boolean, number:
	}
	return append(b, n.raw...)
}

// digest is the same for two texts that say the same: the order of keys, white space and the way that characters are
// escaped make no difference. The digits of numbers do.
func (n *node) digest() [sha256.Size]byte {
	sorted := n.sorted()
	return sha256.Sum256(sorted.compact(make([]byte, 0, len(n.raw))))
}

func (n *node) sorted() node {
	out := *n
	out.items = slices.Clone(n.items)
	for i := range out.items {
		out.items[i] = out.items[i].sorted()
	}
	out.members = slices.Clone(n.members)
	for i := range out.members {
		out.members[i].value = out.members[i].value.sorted()
	}
	slices.SortFunc(out.members, func(a, b member) int { return strings.Compare(a.name, b.name) })
	return out
}

// appendText writes a string with the fewest escapes, as JavaScript's JSON.stringify does.
func appendText(b []byte, s string) []byte {
	const hex = "0123456789abcdef"
	b = append(b, '"')
	for len(s) > 0 {
		plain := 0
		for plain < len(s) && s[plain] >= 0x20 && s[plain] != '"' && s[plain] != '\\' {
			plain++
		}
		b = append(b, s[:plain]...)
		if s = s[plain:]; s == "" {
			break
		}
		c := s[0]
		s = s[1:]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\b':
			b = append(b, '\\', 'b')
		case c == '\f':
			b = append(b, '\\', 'f')
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		default:
			b = append(b, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		}
	}
	return append(b, '"')
}
