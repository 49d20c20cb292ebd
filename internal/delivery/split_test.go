package delivery_test

import (
	"strings"
	"testing"
	"unicode"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/weirqueue/weir/internal/delivery"
)

func units(s string) int { return len(utf16.Encode([]rune(s))) }

// fits checks what every split promises: the parts are the text in order, with nothing but white space left out, each
// valid and within both counts.
func fits(t require.TestingT, text string, limit int, parts []string) {
	rest := text
	for i, part := range parts {
		require.NotEmpty(t, part, i)
		require.True(t, utf8.ValidString(part), i)
		require.LessOrEqual(t, units(part), limit, i)
		require.LessOrEqual(t, utf8.RuneCountInString(part), limit, i)
		require.Equal(t, strings.TrimSpace(part), part, i)
		at := strings.Index(rest, part)
		require.GreaterOrEqual(t, at, 0, "part %d is in the text, after the one before it", i)
		require.Empty(t, strings.TrimSpace(rest[:at]), "only white space was left out before part %d", i)
		rest = rest[at+len(part):]
	}
	require.Empty(t, strings.TrimSpace(rest), "nothing is missing at the end")
}

// TG-05
func TestSplit_AnyTextIsWhatItsPartsSay(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		words := rapid.SliceOf(rapid.OneOf(
			rapid.String(), rapid.StringN(0, 40, -1), rapid.SampledFrom([]string{
				" ", "\n", "\n\n", "\r\n", "\t", "🌊", "👩‍👩‍👧", "👍🏽", "🇩🇪", "🇩🇪🇫🇷", "e\u0301", "x", "<b>", "&amp;", strings.Repeat("\u0301", 50), strings.Repeat("a", 30),
			}),
		)).Draw(t, "words")
		text := strings.Join(words, "")
		limit := rapid.IntRange(2, 60).Draw(t, "limit")
		parts := delivery.Split(text, limit)
		fits(t, text, limit, parts)
		require.Equal(t, parts, delivery.Split(text, limit), "the same text gives the same parts")
		require.Equal(t, strings.TrimSpace(text) == "", len(parts) == 0)
	})
}

// TG-05: whichever way Telegram counts.
func TestSplit_FitsUnderBothCounts(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		text  string
		parts int
	}{
		"4096 ASCII":                   {strings.Repeat("a", 4096), 1},
		"4097 ASCII":                   {strings.Repeat("a", 4097), 2},
		"2048 emoji":                   {strings.Repeat("🌊", 2048), 1},
		"2100 emoji":                   {strings.Repeat("🌊", 2100), 2},
		"4096 emoji":                   {strings.Repeat("🌊", 4096), 2},
		"4095 ASCII and an emoji":      {strings.Repeat("a", 4095) + "🌊", 2},
		"trimmed it fits":              {"\n " + strings.Repeat("a", 4096) + " \n", 1},
		"empty after trimming":         {" \n\t\u00a0\u2028", 0},
		"nothing":                      {"", 0},
		"a tag across the limit":       {strings.Repeat("a", 4094) + "<b>bold</b> & _x_ *y* [z", 2},
		"a mark for each byte, no end": {"e" + strings.Repeat("\u0301", 9000), 3},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts := delivery.Split(c.text, delivery.TelegramLimit)
			require.Len(t, parts, c.parts)
			fits(t, c.text, delivery.TelegramLimit, parts)
		})
	}
}

func TestSplit_PrefersParagraphsThenLinesThenWords(t *testing.T) {
	t.Parallel()
	require.Equal(t, []string{"one\ntwo 2", "three four", "five"}, delivery.Split("one\ntwo 2\n\nthree four\nfive", 14))
	require.Equal(t, []string{"one two", "three four"}, delivery.Split("one two\nthree four", 12))
	require.Equal(t, []string{"one two", "threefour"}, delivery.Split("one two threefour", 12))
	require.Equal(t, []string{"exactly ten", "x"}, delivery.Split("exactly ten x", 11))
	require.Equal(t, []string{"a b12345", "67890123", "45"}, delivery.Split("a b123456789012345", 8), "an early space would leave a part nearly empty")
}

func TestSplit_KeepsTogetherWhatReadersSeeAsOneCharacter(t *testing.T) {
	t.Parallel()
	for _, character := range []string{"e\u0301", "👍🏽", "👩‍🚀", "🇩🇪", "❤\ufe0f"} {
		for pad := range 12 {
			text := strings.Repeat("x", 8+pad) + strings.Repeat(character, 6)
			for _, part := range delivery.Split(text, 16) {
				rest := strings.TrimLeft(strings.ReplaceAll(part, character, ""), "x")
				require.Empty(t, rest, "%q has a piece of %q", part, character)
			}
		}
	}
}

func TestPlainText_IsTheSubjectAndTheText(t *testing.T) {
	t.Parallel()
	require.Equal(t, "Hello\n\nworld", delivery.PlainText(" Hello ", "\nworld\n"))
	require.Equal(t, "world", delivery.PlainText("", " world"))
	require.Equal(t, "Hello", delivery.PlainText("Hello", " "))
	require.False(t, strings.ContainsFunc(delivery.PlainText("", " "), unicode.IsSpace))
}
