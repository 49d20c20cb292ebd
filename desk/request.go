package desk

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"mime"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"
)

const (
	// MaxBodyBytes is how large a request may be: content and what is around it.
	MaxBodyBytes = MaxContentBytes + 64<<10
	// What is above that is read and thrown away up to a bound, so that a browser has sent its body and reads the answer
	// instead of seeing a connection that was reset.
	drainBytes = 16 << 20
	drainTime  = 10 * time.Second
	// Memory is not taken for what a client only says that it will send.
	firstBytes = 256 << 10
)

// body reads the request's JSON object. Without must, there may be no body.
func (c *call) body(must bool) (*node, error) {
	mediaType := c.r.Header.Get("Content-Type")
	if !must && mediaType == "" && c.r.ContentLength == 0 {
		return &node{kind: object}, nil
	}
	name, params, err := mime.ParseMediaType(mediaType)
	if err != nil || name != "application/json" || len(c.r.Header.Values("Content-Encoding")) > 0 ||
		params["charset"] != "" && !strings.EqualFold(params["charset"], "utf-8") {
		return nil, errMediaType
	}
	raw, err := c.read()
	if err != nil {
		return nil, err
	}
	n, err := parseJSON("body", raw)
	if err != nil {
		return nil, err
	}
	if n.kind != object {
		return nil, invalid("body", string(raw[:min(len(raw), maxShownValue+4)]), "an object")
	}
	return &n, nil
}

func (c *call) read() ([]byte, error) {
	var b bytes.Buffer
	b.Grow(int(min(max(c.r.ContentLength, 0), firstBytes)) + bytes.MinRead)
	_, err := b.ReadFrom(io.LimitReader(c.r.Body, MaxBodyBytes+1))
	raw := b.Bytes()
	var outer *http.MaxBytesError
	if errors.As(err, &outer) { // a lower limit, in front of this handler
		return nil, &TooLargeError{Field: "body", Size: max(c.r.ContentLength, outer.Limit+1), Unit: "bytes", Bound: outer.Limit}
	}
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errIncomplete, err)
	}
	if len(raw) <= MaxBodyBytes {
		return raw, nil
	}
	size := max(c.r.ContentLength, int64(len(raw)))
	if size <= drainBytes {
		size = max(size, int64(len(raw))+drain(c.w, c.r, drainBytes))
	}
	return nil, &TooLargeError{Field: "body", Size: size, Unit: "bytes", Bound: MaxBodyBytes}
}

// drain reads what is left of a body and throws it away. The deadline ends a client that sends slowly for ever; a writer
// that has none is bounded by the server's.
func drain(w http.ResponseWriter, r *http.Request, most int64) int64 {
	_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(drainTime))
	n, _ := io.Copy(io.Discard, io.LimitReader(r.Body, most)) // the answer is the same
	return n
}

// drainRefused does so for a request that is refused before its body was read. A sender that asks first, by Expect, has
// not begun.
func drainRefused(w http.ResponseWriter, r *http.Request) {
	if r.Body == nil || r.Body == http.NoBody || r.ContentLength > MaxBodyBytes || r.Header.Get("Expect") != "" {
		return
	}
	drain(w, r, MaxBodyBytes)
}

// fields reads the members of a body one by one and collects what is wrong with them.
type fields struct {
	faults
	body *node
}

func (f *fields) get(name string) *node { return f.body.get(name) }

// text is a member that is a text; "" when it is not there, which is a fault where it must be.
func (f *fields) text(name string, must bool) string {
	n := f.get(name)
	if n == nil && !must {
		return ""
	}
	if !f.kind(name, n, text) {
		return ""
	}
	return n.text
}

// token is a member that is an id of a writer's own: of a save, or of the writer.
func (f *fields) token(name string, must bool) string {
	v := f.text(name, must)
	if n := f.get(name); n.is(text) && !token.MatchString(v) {
		f.add(name, v, tokenBound)
	}
	return v
}

// optionalText is a member that is a text, or not there.
func (f *fields) optionalText(name string) *string {
	if n := f.get(name); f.optional(name, n, text) {
		return &n.text
	}
	return nil
}

func (f *fields) optionalBool(name string) *bool {
	if n := f.get(name); f.optional(name, n, boolean) {
		v := string(n.raw) == "true"
		return &v
	}
	return nil
}

// optionalFolder is a member that is the id of a folder, or null for the root, or not there.
func (f *fields) optionalFolder(name string) *FolderID {
	n := f.get(name)
	if !f.optional(name, n, text, null) {
		return nil
	}
	id := FolderID(n.text)
	if n.kind == text && !folderID.MatchString(n.text) {
		f.add(name, n.text, folderBound)
	}
	return &id
}

// integer is a member that is written as an integer, from 1 to most; 0 when it is not there. 5.0 and "5" are none.
func (f *fields) integer(name string, most int64) int64 {
	n := f.get(name)
	if n == nil {
		return 0
	}
	v, err := strconv.ParseInt(string(n.raw), 10, 64)
	if n.kind != number || err != nil || v < 1 || v > most {
		f.add(name, string(n.raw), fmt.Sprintf("an integer from 1 to %d", most))
		return 0
	}
	return v
}

// query reads the parameters of a list. Unknown ones are refused: a filter that is misspelled would show too much.
func (c *call) query(f *faults, known ...string) map[string]string {
	out := map[string]string{}
	all, err := url.ParseQuery(c.r.URL.RawQuery)
	if err != nil {
		f.add("query", c.r.URL.RawQuery, "names and values, URI-encoded, with & between them")
	}
	for name, values := range all {
		switch {
		case !slices.Contains(known, name):
			f.add(name, values[0], "absent; known are "+strings.Join(known, ", "))
		case len(values) > 1:
			f.add(name, values[1], "there once")
		default:
			out[name] = values[0]
		}
	}
	return out
}

func pagingOf(f *faults, query map[string]string) (p Paging) {
	for name, into := range map[string]*int{"page": &p.Page, "pageSize": &p.PageSize} {
		given, ok := query[name]
		if !ok {
			continue
		}
		n, err := strconv.Atoi(given)
		if err != nil || n < 1 {
			f.add(name, given, "a positive integer")
			continue
		}
		*into = n
	}
	return p
}

func flagOf(f *faults, query map[string]string, name string) bool {
	switch v := query[name]; v {
	case "true":
		return true
	case "false", "":
	default:
		f.add(name, v, "true or false")
	}
	return false
}
