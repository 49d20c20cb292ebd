package receipts

import (
	"regexp"
	"strconv"
	"strings"
)

var (
	parameterNumber = regexp.MustCompile(`^\$([0-9]+)`)
	dollarQuote     = regexp.MustCompile(`^\$[A-Za-z_\x80-\xff]?[A-Za-z0-9_\x80-\xff]*\$`)
)

// highestParameter is the highest $n in a statement, outside of its strings, quoted names and comments.
func highestParameter(sql string) int {
	highest := 0
	for i := 0; i < len(sql); {
		rest := sql[i:]
		switch {
		case strings.HasPrefix(rest, "--"):
			i += upTo(rest, "\n")
		case strings.HasPrefix(rest, "/*"):
			i += blockComment(rest)
		case rest[0] == '\'':
			escapes := i > 0 && (sql[i-1] == 'e' || sql[i-1] == 'E') && (i < 2 || !isWord(sql[i-2]))
			i += quoted(rest, escapes)
		case rest[0] == '"':
			i += quoted(rest, false)
		case rest[0] == '$' && (i == 0 || !isWord(sql[i-1])):
			if m := parameterNumber.FindStringSubmatch(rest); m != nil {
				if n, err := strconv.Atoi(m[1]); err == nil {
					highest = max(highest, n)
				}
				i += len(m[0])
			} else if tag := dollarQuote.FindString(rest); tag != "" {
				i += len(tag) + upTo(rest[len(tag):], tag)
			} else {
				i++
			}
		default:
			i++
		}
	}
	return highest
}

func isWord(b byte) bool {
	return b == '_' || b == '$' || b >= 0x80 || b >= '0' && b <= '9' || b >= 'a' && b <= 'z' || b >= 'A' && b <= 'Z'
}

// upTo is the length up to the end of the first end, or of all.
func upTo(s, end string) int {
	if at := strings.Index(s, end); at >= 0 {
		return at + len(end)
	}
	return len(s)
}

// quoted is the length of what the quote at the start begins. A doubled quote ends and begins one, which comes to the
// same.
func quoted(s string, escapes bool) int {
	for i := 1; i < len(s); i++ {
		switch {
		case escapes && s[i] == '\\':
			i++
		case s[i] == s[0]:
			return i + 1
		}
	}
	return len(s)
}

// blockComment is the length of a comment, which may hold others.
func blockComment(s string) int {
	depth := 0
	for i := 0; i+1 < len(s); i++ {
		switch s[i : i+2] {
		case "/*":
			depth++
			i++
		case "*/":
			depth--
			i++
			if depth == 0 {
				return i + 1
			}
		}
	}
	return len(s)
}
