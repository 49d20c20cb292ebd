package plan

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"unicode/utf8"
)

// maxExponent is far beyond what a tool asks for, and below what makes PostgreSQL's numeric, or arithmetic, explode.
const maxExponent = 1000

// maxDepth bounds how deep JSON may be nested.
const maxDepth = 100

// Canonical reads JSON and returns its one canonical form: members sorted by name, no white space, and numbers digit for
// digit as they were written. It returns the value too, with numbers as json.Number. What two readers could understand
// differently, or PostgreSQL cannot store, is an error: a member that is there twice, half a surrogate pair, NUL.
func Canonical(raw []byte) (json.RawMessage, any, error) {
	switch {
	case !utf8.Valid(raw):
		return nil, nil, errors.New("it is not UTF-8")
	case !json.Valid(raw):
		return nil, nil, errors.New("it is not JSON")
	case halfSurrogate(raw):
		return nil, nil, errors.New(`it holds half of a surrogate pair, such as \ud800`)
	}
	dec := json.NewDecoder(bytes.NewReader(raw))
	dec.UseNumber()
	v, err := value(dec, 0)
	if err != nil {
		return nil, nil, err
	}
	if _, err := dec.Token(); !errors.Is(err, io.EOF) {
		return nil, nil, errors.New("something follows it")
	}
	out, err := encode(v)
	return out, v, err
}

func value(dec *json.Decoder, depth int) (any, error) {
	if depth > maxDepth {
		return nil, fmt.Errorf("it is nested deeper than %d", maxDepth)
	}
	token, err := dec.Token()
	if err != nil {
		return nil, err
	}
	switch t := token.(type) {
	case json.Delim:
		if t == '[' {
			return array(dec, depth)
		}
		return object(dec, depth)
	case string:
		return t, storable(t)
	case json.Number:
		return t, boundedNumber(t)
	}
	return token, nil
}

func array(dec *json.Decoder, depth int) (any, error) {
	list := []any{}
	for dec.More() {
		v, err := value(dec, depth+1)
		if err != nil {
			return nil, err
		}
		list = append(list, v)
	}
	_, err := dec.Token()
	return list, err
}

func object(dec *json.Decoder, depth int) (any, error) {
	members := map[string]any{}
	for dec.More() {
		token, err := dec.Token()
		if err != nil {
			return nil, err
		}
		name, _ := token.(string) // JSON that is valid has no other names
		if _, twice := members[name]; twice {
			return nil, fmt.Errorf("it has the member %.80q twice", name)
		}
		if err := storable(name); err != nil {
			return nil, err
		}
		if members[name], err = value(dec, depth+1); err != nil {
			return nil, err
		}
	}
	_, err := dec.Token()
	return members, err
}

func storable(s string) error {
	if strings.ContainsRune(s, 0) {
		return errors.New("it holds a NUL, which PostgreSQL cannot store")
	}
	return nil
}

func boundedNumber(n json.Number) error {
	if len(n) > maxExponent {
		return fmt.Errorf("it holds a number of %d characters", len(n))
	}
	if _, exponent, ok := strings.Cut(strings.ToLower(n.String()), "e"); ok {
		if e, err := strconv.Atoi(exponent); err != nil || e > maxExponent || e < -maxExponent {
			return fmt.Errorf("it holds the number %.40s", n)
		}
	}
	return nil
}

// halfSurrogate reports an escape that is half of a character. Go would read U+FFFD instead, silently.
func halfSurrogate(raw []byte) bool {
	high := false
	for i := 0; i < len(raw); i++ {
		unit := rune(-1)
		size := 1
		if raw[i] == '\\' && i+1 < len(raw) {
			size = 2
			if raw[i+1] == 'u' && i+6 <= len(raw) {
				n, err := strconv.ParseUint(string(raw[i+2:i+6]), 16, 32)
				if err == nil {
					unit, size = rune(n), 6
				}
			}
		}
		low := unit >= 0xdc00 && unit <= 0xdfff
		if low != high {
			return true
		}
		high = unit >= 0xd800 && unit <= 0xdbff
		i += size - 1
	}
	return high
}

// encode writes JSON without HTML escapes and white space; maps come sorted by name.
func encode(v any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(v); err != nil {
		return nil, err
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n")), nil
}
