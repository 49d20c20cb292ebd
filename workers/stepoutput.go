package workers

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/weirqueue/weir/jobs"
)

// maxExponent keeps out numbers that encoding/json takes as text and jsonb, whose numbers are PostgreSQL's numeric,
// does not.
const maxExponent = 1000

// encode makes an output storable before anything is committed with it (PL-13): what PostgreSQL would refuse later is
// found while nothing depends on it yet. Invalid UTF-8 and half a surrogate pair become U+FFFD, as encoding/json has it.
func encode(out any) (json.RawMessage, error) {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(out); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrOutput, err)
	}
	text := bytes.TrimSpace(b.Bytes())
	if len(text) > jobs.MaxOutputBytes {
		return nil, fmt.Errorf("%w: it has %d bytes", ErrOutput, len(text))
	}
	if !utf8.Valid(text) { // only a RawMessage or a Marshaler of the step's own
		text = bytes.ToValidUTF8(text, []byte("\uFFFD"))
	}
	if err := repairEscapes(text); err != nil {
		return nil, err
	}
	return text, numbersFit(text)
}

// repairEscapes refuses an escaped NUL, and turns half a surrogate pair into U+FFFD, in place. A backslash that is
// itself escaped begins nothing.
func repairEscapes(text []byte) error {
	for i := 0; i+1 < len(text); i++ {
		if text[i] != '\\' {
			continue
		}
		i++
		if text[i] != 'u' {
			continue
		}
		switch code := hex4(text, i+1); {
		case code == 0:
			return fmt.Errorf("%w: it holds a NUL", ErrOutput)
		case code >= 0xD800 && code < 0xDC00:
			if i+6 < len(text) && text[i+5] == '\\' && text[i+6] == 'u' {
				if low := hex4(text, i+7); low >= 0xDC00 && low < 0xE000 {
					i += 10
					continue
				}
			}
			copy(text[i+1:], "fffd")
		case code >= 0xDC00 && code < 0xE000:
			copy(text[i+1:], "fffd")
		}
		i += 4
	}
	return nil
}

func hex4(text []byte, at int) int {
	if at+4 > len(text) {
		return -1
	}
	n, err := strconv.ParseUint(string(text[at:at+4]), 16, 32)
	if err != nil {
		return -1
	}
	return int(n) // #nosec G115 -- four hex digits
}

func numbersFit(text []byte) error {
	if !bytes.ContainsAny(text, "eE") {
		return nil
	}
	dec := json.NewDecoder(bytes.NewReader(text))
	dec.UseNumber()
	for {
		token, err := dec.Token()
		if err != nil {
			return nil // the end
		}
		n, ok := token.(json.Number)
		if !ok {
			continue
		}
		if _, exponent, ok := strings.Cut(strings.ToLower(n.String()), "e"); ok {
			if e, err := strconv.Atoi(exponent); err != nil || e > maxExponent || e < -maxExponent {
				return fmt.Errorf("%w: it holds the number %.40s", ErrOutput, n)
			}
		}
	}
}
