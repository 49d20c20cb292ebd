package desk

import (
	"fmt"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// Bounds of any JSON that is taken.
const (
	// MaxDepth is how deeply arrays and objects may be nested, the outermost counted.
	MaxDepth = 32
	// MaxValues is how many values, of any kind and depth, there may be. A parsed value takes more memory than its text.
	MaxValues = 100_000
	// maxExponent keeps numbers within what PostgreSQL's numeric takes.
	maxExponent = 1000
)

// The package reads JSON itself because the difference between what was sent and what is stored would be silent loss:
// encoding/json takes the last of duplicate keys, matches keys whatever their case, and puts U+FFFD where a surrogate
// has no partner.

type kind byte

const (
	null    kind = 'n'
	boolean kind = 'b'
	number  kind = '0'
	text    kind = '"'
	array   kind = '['
	object  kind = '{'
)

// node is a JSON value that PostgreSQL can store and that means the same to every reader.
type node struct {
	kind    kind
	raw     []byte // as it was sent
	text    string // of a text, decoded
	items   []node // of an array
	members []member
}

type member struct {
	name  string
	value node
}

// get returns the member of an object, or nil.
func (n *node) get(name string) *node {
	for i := range n.members {
		if n.members[i].name == name {
			return &n.members[i].value
		}
	}
	return nil
}

// parser reads one JSON text. Its first error ends it.
type parser struct {
	in     []byte
	at     int
	depth  int
	values int
	path   []string
}

// parseJSON reads exactly one value. The error is an *InvalidError whose field is the path of what was refused, below
// root.
func parseJSON(root string, in []byte) (node, error) {
	p := &parser{in: in, path: []string{root}}
	if !utf8.Valid(in) {
		return node{}, p.refuse("", "UTF-8")
	}
	n, err := p.value()
	if err != nil {
		return node{}, err
	}
	if p.space(); p.at < len(p.in) {
		return node{}, p.refuse(p.shown(), "one JSON value, and nothing after it")
	}
	return n, nil
}

func (p *parser) refuse(value, bound string) error {
	return invalid(strings.Join(p.path, "."), value, bound)
}

// shown is the beginning of what is not understood.
func (p *parser) shown() string { return string(p.in[p.at:min(len(p.in), p.at+20)]) }

func (p *parser) malformed() error {
	if p.at >= len(p.in) {
		return p.refuse("", "complete JSON; it ends early")
	}
	return p.refuse(p.shown(), "JSON; see byte "+strconv.Itoa(p.at))
}

func (p *parser) space() {
	for p.at < len(p.in) && (p.in[p.at] == ' ' || p.in[p.at] == '\n' || p.in[p.at] == '\t' || p.in[p.at] == '\r') {
		p.at++
	}
}

// next skips white space and takes c if it comes.
func (p *parser) next(c byte) bool {
	p.space()
	if p.at < len(p.in) && p.in[p.at] == c {
		p.at++
		return true
	}
	return false
}

func (p *parser) value() (n node, err error) {
	if p.values++; p.values > MaxValues {
		return n, p.refuse("", fmt.Sprintf("at most %d values", MaxValues))
	}
	p.space()
	if p.at >= len(p.in) {
		return n, p.malformed()
	}
	began := p.at
	switch c := p.in[p.at]; {
	case c == '{':
		n.kind = object
		n.members, err = p.object()
	case c == '[':
		n.kind = array
		n.items, err = p.array()
	case c == '"':
		n.kind = text
		n.text, err = p.text()
	case c == '-' || c >= '0' && c <= '9':
		n.kind = number
		err = p.number()
	case p.word("true"), p.word("false"):
		n.kind = boolean
	case p.word("null"):
		n.kind = null
	default:
		err = p.malformed()
	}
	n.raw = p.in[began:p.at]
	return n, err
}

func (p *parser) word(w string) bool {
	if strings.HasPrefix(string(p.in[p.at:min(len(p.in), p.at+len(w))]), w) {
		p.at += len(w)
		return true
	}
	return false
}

// enter goes one level down, past the opening bracket.
func (p *parser) enter() error {
	if p.depth++; p.depth > MaxDepth {
		return p.refuse("", fmt.Sprintf("nested at most %d deep", MaxDepth))
	}
	p.at++
	return nil
}

func (p *parser) object() ([]member, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	var members []member
	seen := map[string]bool{}
	for more := !p.next('}'); more; more = !p.next('}') {
		if len(members) > 0 && !p.next(',') {
			return nil, p.malformed()
		}
		if p.space(); p.at >= len(p.in) || p.in[p.at] != '"' {
			return nil, p.malformed()
		}
		name, err := p.text()
		if err != nil {
			return nil, err
		}
		p.path = append(p.path, shorten(name))
		if seen[name] {
			return nil, p.refuse("", "there once; the key is there twice")
		}
		seen[name] = true
		if !p.next(':') {
			return nil, p.malformed()
		}
		value, err := p.value()
		if err != nil {
			return nil, err
		}
		members = append(members, member{name, value})
		p.path = p.path[:len(p.path)-1]
	}
	p.depth--
	return members, nil
}

func (p *parser) array() ([]node, error) {
	if err := p.enter(); err != nil {
		return nil, err
	}
	var items []node
	for more := !p.next(']'); more; more = !p.next(']') {
		if len(items) > 0 && !p.next(',') {
			return nil, p.malformed()
		}
		p.path = append(p.path, strconv.Itoa(len(items)))
		item, err := p.value()
		if err != nil {
			return nil, err
		}
		items = append(items, item)
		p.path = p.path[:len(p.path)-1]
	}
	p.depth--
	return items, nil
}

func (p *parser) number() error {
	began := p.at
	digits := func() bool {
		from := p.at
		for p.at < len(p.in) && p.in[p.at] >= '0' && p.in[p.at] <= '9' {
			p.at++
		}
		return p.at > from
	}
	one := func(set string) bool {
		if p.at < len(p.in) && strings.IndexByte(set, p.in[p.at]) >= 0 {
			p.at++
			return true
		}
		return false
	}
	one("-")
	if !one("0") && !digits() {
		return p.malformed()
	}
	if one(".") && !digits() {
		return p.malformed()
	}
	if one("eE") {
		one("+-")
		from := p.at
		if !digits() {
			return p.malformed()
		}
		if e, err := strconv.Atoi(string(p.in[from:p.at])); err != nil || e > maxExponent {
			return p.refuse(shorten(string(p.in[began:p.at])), fmt.Sprintf("a number with an exponent of at most %d", maxExponent))
		}
	}
	if p.at-began > maxExponent {
		return p.refuse(shorten(string(p.in[began:p.at])), fmt.Sprintf("a number of at most %d characters", maxExponent))
	}
	return nil
}

// text reads a string, from its first quote to its last. NUL is refused because PostgreSQL's text and jsonb have none,
// and half a surrogate pair because UTF-8 has none: both would be lost, or refused, later on.
func (p *parser) text() (string, error) {
	var b strings.Builder
	p.at++
	for p.at < len(p.in) {
		c := p.in[p.at]
		switch {
		case c == '"':
			p.at++
			return b.String(), nil
		case c == '\\':
			r, err := p.escape()
			if err != nil {
				return "", err
			}
			b.WriteRune(r)
		case c < 0x20:
			return "", p.malformed()
		default:
			began := p.at
			for p.at < len(p.in) && p.in[p.at] >= 0x20 && p.in[p.at] != '"' && p.in[p.at] != '\\' {
				p.at++
			}
			b.Write(p.in[began:p.at])
		}
	}
	return "", p.malformed()
}

func (p *parser) escape() (rune, error) {
	p.at++
	if p.at >= len(p.in) {
		return 0, p.malformed()
	}
	c := p.in[p.at]
	if i := strings.IndexByte(`"\/bfnrt`, c); i >= 0 {
		p.at++
		return rune("\"\\/\b\f\n\r\t"[i]), nil
	}
	if c != 'u' {
		return 0, p.malformed()
	}
	r, ok := p.hex4(p.at + 1)
	if !ok {
		return 0, p.malformed()
	}
	p.at += 5
	switch {
	case r == 0:
		return 0, p.refuse(`\u0000`, "without the character NUL, which cannot be stored")
	case !utf16.IsSurrogate(r):
		return r, nil
	}
	low := rune(-1)
	if p.at+1 < len(p.in) && p.in[p.at] == '\\' && p.in[p.at+1] == 'u' {
		low, _ = p.hex4(p.at + 2)
	}
	pair := utf16.DecodeRune(r, low)
	if pair == utf8.RuneError {
		return 0, p.refuse(fmt.Sprintf(`\u%04x`, r), "without half a surrogate pair, which cannot be stored")
	}
	p.at += 6
	return pair, nil
}

func (p *parser) hex4(from int) (rune, bool) {
	if from+4 > len(p.in) {
		return -1, false
	}
	v, err := strconv.ParseUint(string(p.in[from:from+4]), 16, 32)
	return rune(v), err == nil
}
