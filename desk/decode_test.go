package desk

import (
	"bytes"
	"encoding/json"
	"errors"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"
)

// Whatever arrives is either refused with the name of a field, or it is JSON that PostgreSQL takes and that says the same
// when it is read again.
func FuzzDecodeSave(f *testing.F) {
	for _, body := range []string{
		`{"expectedVersion":1,"saveId":"s","writerId":"w","schemaVersion":1,"content":{"text":"a"}}`,
		`{"expectedVersion":1,"saveId":"s","writerId":"w","schemaVersion":1,"content":{"cells":{"A1":{"v":1e3,"f":"=1"}},"columnMeta":{"A":{"width":1}}}}`,
		`{"expectedVersion":1,"expectedRev":"r","saveId":"s","writerId":"w","schemaVersion":2,"content":{"attributes":{"\ud83d\ude00":[null,true,-0.5]}}}`,
		`{"name":"\u0000","folderId":null,"aiContext":false}`, `{"name":"x","name":"y"}`, `[[[[`, `{"content":{"text":"\ud800"}}`, `{"a":1e9999}`, "\"\xff",
	} {
		f.Add([]byte(body), `"1-s"`)
		f.Add([]byte(body), ``)
	}
	f.Fuzz(func(t *testing.T, body []byte, ifMatch string) {
		n, err := parseJSON("body", body)
		if err != nil {
			require.NotEmpty(t, fieldsOf(err), "%v", err)
			return
		}
		require.True(t, json.Valid(body))
		text := n.compact(nil)
		require.True(t, json.Valid(text))
		require.True(t, utf8.Valid(text))
		again, err := parseJSON("body", text)
		require.NoError(t, err)
		require.Equal(t, string(text), string(again.compact(nil)))
		require.Equal(t, n.digest(), again.digest())

		if n.kind != object {
			return
		}
		var headers []string
		if ifMatch != "" {
			headers = []string{ifMatch}
		}
		v, content, err := decodeSave(&n, headers)
		var large *TooLargeError
		switch {
		case errors.Is(err, errVersionRequired), errors.As(err, &large):
		case err != nil:
			require.NotEmpty(t, fieldsOf(err), "%v", err)
		case content:
			require.Positive(t, v.ExpectedVersion)
			require.Regexp(t, token, string(v.ID))
			if v.SchemaVersion == SchemaVersion {
				require.NoError(t, v.validate())
				require.True(t, v.Content.typ.known())
				require.NotContains(t, v.Content.json, "\x00")
			}
		}
	})
}

// A text is taken by this parser exactly where encoding/json takes it, but for what is refused on purpose.
func TestParse_AgreesWithTheStandardLibrary(t *testing.T) {
	t.Parallel()
	for _, in := range []string{
		`0`, `-0`, `00`, `-`, `+1`, `.5`, `5.`, `1.5e`, `1e+`, `1e+5`, `1E-0`, `1.0`, `01`, `1 2`, ``, ` `, `nul`, `null`, `nullx`, `true`, `tru`, `false`, `NaN`,
		`"`, `"a`, `"\`, `"\x"`, `"\u12"`, `"\u12G4"`, `"\u+123"`, `"\n"`, "\"\n\"", "\"\x7f\"", `"\/"`, `[`, `[]`, `[,]`, `[1,]`, `[1,2]`, `[1 2]`, `{`, `{}`, `{,}`,
		`{"a"}`, `{"a":}`, `{"a":1,}`, `{"a":1 "b":2}`, `{a:1}`, `{"a":1,"b":2}`, `{1:2}`, `]`, `}`, "\ufeff1", `[1]x`, "\v1", "1\n", `'a'`, `[1}`,
	} {
		n, err := parseJSON("x", []byte(in))
		require.Equal(t, json.Valid([]byte(in)), err == nil, "%q: %v", in, err)
		if err == nil {
			var compact bytes.Buffer
			require.NoError(t, json.Compact(&compact, []byte(in)))
			if !strings.Contains(in, `\/`) {
				require.Equal(t, compact.String(), string(n.compact(nil)))
			}
		}
	}
}

func TestContent_EqualWhateverTheOrderOfKeys(t *testing.T) {
	t.Parallel()
	parse := func(s string) Content {
		c, err := ParseContent([]byte(s))
		require.NoError(t, err)
		return c
	}
	a := parse(`{"attributes":{"a":{"x":1,"y":[1,2]},"b":"é"}}`)
	require.True(t, a.Equal(parse(`{ "attributes": {"b":"\u00e9","a":{"y":[1,2],"x":1}}}`)))
	require.False(t, a.Equal(parse(`{"attributes":{"a":{"x":1,"y":[2,1]},"b":"é"}}`)))
	require.False(t, a.Equal(parse(`{"attributes":{"a":{"x":1.0,"y":[1,2]},"b":"é"}}`)))
	require.JSONEq(t, `{"attributes":{"a":{"x":1,"y":[1,2]},"b":"é"}}`, string(a.JSON()))
}
