package email

import (
	"encoding/base64"
	"strings"
	"unicode/utf8"
)

// maxPlainWord is the longest word that a folded header carries as it is.
const maxPlainWord = 60

// maxEncodedText is how many bytes of text fit into an encoded-word of RFC 2047, which has at most 75 characters:
// "=?UTF-8?B?" and "?=" leave 63, that is 60 in base64.
const maxEncodedText = 45

// encodeSubject makes a header value that every reader decodes to exactly s, and that can be folded at its spaces.
// What folding or decoding would change is encoded: it would lose doubled or outer spaces, break lines that have no
// space at all, and read "=?" as an encoding.
func encodeSubject(s string) string {
	if isPlainSubject(s) {
		return s
	}
	var words []string
	for s != "" {
		n := min(len(s), maxEncodedText)
		for n < len(s) && !utf8.RuneStart(s[n]) {
			n--
		}
		words = append(words, "=?UTF-8?B?"+base64.StdEncoding.EncodeToString([]byte(s[:n]))+"?=")
		s = s[n:]
	}
	return strings.Join(words, " ")
}

func isPlainSubject(s string) bool {
	if s == "" {
		return true
	}
	if !isPrintableASCII(s) || strings.Contains(s, "=?") {
		return false
	}
	for word := range strings.SplitSeq(s, " ") {
		if word == "" || len(word) > maxPlainWord {
			return false
		}
	}
	return true
}
