package workers

import (
	"fmt"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Bounds of what is stored of an outcome, in bytes.
const (
	maxMessage     = 4 << 10
	maxCode        = 100
	maxExternalRef = 500
)

type secret struct {
	pattern *regexp.Regexp
	masked  string
}

// What looks like a credential: the password of a URL (which may hold an @ that nobody encoded), a named secret, a
// bearer token.
var secrets = []secret{
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.\-]*://[^\s:/@]*:)\S+@`), "${1}***@"},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+[a-z0-9+/=._\-]{8,}`), "${1} ***"},
	{regexp.MustCompile(`(?i)((?:password|passwd|secret|token|api[_-]?key)["']?\s*[:=]\s*["']?)[^\s"',;&]+`), "${1}***"},
}

// What may be the beginning of one, where the searched part of a text ends.
var secretsAtEnd = []secret{
	{regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.\-]*://[^\s:/@]*:)[^\s@]+$`), "${1}***"},
	{regexp.MustCompile(`(?i)\b(bearer|basic)\s+\S*$`), "${1} ***"},
}

const searchBeyond = 4 << 10

const cut = "… (cut)"

// clean makes text storable: PostgreSQL takes neither NUL nor invalid UTF-8, and a single such byte in an error would
// stop a whole batch of River's. What looks like a credential is masked, and the text is cut at a rune.
func clean(s string, limit int) string {
	// A long text is cut before it is searched, with room for a credential that begins before the limit: cleaning must
	// not outlast a lease.
	partly := len(s) > limit+searchBeyond
	if partly {
		s = s[:limit+searchBeyond]
	}
	s = strings.ToValidUTF8(s, "\uFFFD")
	s = strings.ReplaceAll(s, "\x00", "\uFFFD")
	// Each pattern has one of these. Most references have none, and the patterns take longer than all else here.
	if strings.ContainsAny(s, ":= \t\n\f\r") {
		s = mask(s, secrets)
		if partly {
			s = mask(s, secretsAtEnd)
		}
	}
	if len(s) <= limit && !partly {
		return s
	}
	end := min(limit-len(cut), len(s))
	for end > 0 && end < len(s) && !utf8.RuneStart(s[end]) {
		end--
	}
	return s[:end] + cut
}

func mask(s string, list []secret) string {
	for _, secret := range list {
		s = secret.pattern.ReplaceAllString(s, secret.masked)
	}
	return s
}

// textOf is err's text. An error of somebody else's may panic when it is asked, and that must not cost the run its end.
func textOf(err error) (text string) {
	defer func() {
		if p := recover(); p != nil {
			text = fmt.Sprintf("an error of type %T, which panics when it is asked for its text", err)
		}
	}()
	return err.Error()
}
