package delivery

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"
)

const (
	// Telegram is the name of the channel whose messages are split.
	Telegram = "telegram"
	// TelegramLimit is how long one Telegram message may be. Sources disagree whether Telegram counts UTF-16 units or
	// code points. A text has never fewer units than code points, so a part that fits by units fits by both.
	TelegramLimit = 4096
	// MaxParts bounds the parts of one message: each is a step of its run.
	MaxParts = 100
)

// PlainText is what a channel without subjects sends: the subject as a first paragraph, then the text, without white
// space around them.
func PlainText(subject, text string) string {
	return strings.TrimSpace(strings.TrimSpace(subject) + "\n\n" + strings.TrimSpace(text))
}

// Split cuts a plain text into parts of at most limit UTF-16 units, limit being 2 at least. White space around a cut is
// dropped; nothing else is. It cuts between paragraphs if that leaves a part at least half full, else between lines,
// else between words, else between what readers see as characters where that can be told cheaply, and never inside a
// code point. A text of white space has no parts. The same text always gives the same parts.
func Split(text string, limit int) []string {
	var parts []string
	for text = strings.TrimSpace(text); text != ""; text = strings.TrimSpace(text) {
		end := fitting(text, limit)
		if end < len(text) {
			end = cut(text, end)
		}
		parts = append(parts, strings.TrimSpace(text[:end]))
		text = text[end:]
	}
	return parts
}

// fitting is the length in bytes of the longest start of text with at most limit UTF-16 units.
func fitting(text string, limit int) int {
	units := 0
	for at, r := range text {
		if units += max(utf16.RuneLen(r), 1); units > limit {
			return at
		}
	}
	return len(text)
}

// cut finds where to cut text at end or before it, but not before its half.
func cut(text string, end int) int {
	half := end / 2
	for _, between := range []string{"\n\n", "\n"} {
		// The break itself may lie beyond the end: it is dropped.
		window := text[:min(end+len(between), len(text))]
		if at := strings.LastIndex(window, between); at > half {
			return at
		}
	}
	if r, _ := utf8.DecodeRuneInString(text[end:]); unicode.IsSpace(r) {
		return end
	}
	if at := strings.LastIndexFunc(text[:end], unicode.IsSpace); at > half {
		return at
	}
	// Bounded, since a text may consist of marks alone.
	const farBack = 32
	at := end
	for range farBack {
		if at == 0 {
			break
		}
		if !joined(text, at) {
			return at
		}
		_, size := utf8.DecodeLastRuneInString(text[:at])
		at -= size
	}
	return end
}

const (
	zeroWidthJoiner = '\u200d'
	firstSkinTone   = 0x1f3fb
	lastSkinTone    = 0x1f3ff
	firstFlagLetter = 0x1f1e6
	lastFlagLetter  = 0x1f1ff
)

// joined reports whether the code points on both sides of at belong to what readers see as one character: a letter with
// its marks, an emoji with what modifies it, a flag.
func joined(text string, at int) bool {
	before, _ := utf8.DecodeLastRuneInString(text[:at])
	after, _ := utf8.DecodeRuneInString(text[at:])
	switch {
	case unicode.Is(unicode.M, after), after == zeroWidthJoiner, before == zeroWidthJoiner:
		return true
	case after >= firstSkinTone && after <= lastSkinTone, after >= 0xe0020 && after <= 0xe007f: // tags of regional flags
		return true
	case isFlagLetter(before) && isFlagLetter(after):
		letters := 0
		for _, r := range slices.Backward([]rune(text[max(0, at-64):at])) {
			if !isFlagLetter(r) {
				break
			}
			letters++
		}
		return letters%2 == 1
	}
	return false
}

func isFlagLetter(r rune) bool { return r >= firstFlagLetter && r <= lastFlagLetter }
