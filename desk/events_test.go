package desk_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/getkin/kin-openapi/openapi3"
	"github.com/getkin/kin-openapi/openapi3filter"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/desk"
)

func init() {
	openapi3filter.RegisterBodyDecoder("text/event-stream", func(body io.Reader, _ http.Header, _ *openapi3.SchemaRef, _ openapi3filter.EncodingFn) (any, error) {
		text, err := io.ReadAll(body)
		return string(text), err
	})
}

// stream is an open stream of hints.
type stream struct {
	a    *api
	res  *http.Response
	read *bufio.Reader
}

// hint is one event.
type hint struct {
	File    string
	Version int64
	Rev     string
	Deleted bool
}

// watch opens a stream about files, which are named by their paths.
func (a *api) watch(paths ...string) *stream {
	a.t.Helper()
	ids := make([]string, len(paths))
	for i, p := range paths {
		ids[i] = strings.TrimPrefix(p, "/api/desk/files/")
	}
	req, err := http.NewRequestWithContext(a.t.Context(), http.MethodGet, a.url+"/api/desk/events?files="+strings.Join(ids, ","), nil)
	require.NoError(a.t, err)
	req.Header.Set(userHeader, "ada")
	res, err := a.http.Do(req)
	require.NoError(a.t, err)
	a.t.Cleanup(func() { res.Body.Close() })
	require.Equal(a.t, http.StatusOK, res.StatusCode)
	conforms(a.t, req, "", res, []byte("data: {}\n\n"))
	return &stream{a, res, bufio.NewReader(res.Body)}
}

// next waits for a hint.
func (s *stream) next() hint {
	s.a.t.Helper()
	for {
		line, err := s.read.ReadString('\n')
		require.NoError(s.a.t, err)
		if data, ok := strings.CutPrefix(line, "data: "); ok {
			var h hint
			require.NoError(s.a.t, json.Unmarshal([]byte(data), &h))
			return h
		}
	}
}

func TestEvents_SayWhatIsStoredAndThenWhatChanges(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	id := strings.TrimPrefix(file, "/api/desk/files/")
	s := a.watch(file)
	first := s.next()
	require.Equal(t, int64(1), first.Version, "who comes back learns at once what was missed")
	require.Equal(t, id, first.File)
	a.save(file, 1, "second", "two").is(http.StatusOK, "")
	require.Equal(t, hint{id, 2, "second", false}, s.next())
	a.do(http.MethodDelete, file, "").is(http.StatusNoContent, "")
	require.Equal(t, hint{id, 2, "second", true}, s.next())
}

// Nobody learns of another user's file, not even that it is there.
func TestEvents_TellOfOwnFilesOnly(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	own := a.create("own")
	foreign := a.do(http.MethodPost, "/api/desk/files", `{"type":"markdown"}`, as("bob")).is(http.StatusCreated, "").header.Get("Location")
	s := a.watch(foreign, own)
	require.Equal(t, strings.TrimPrefix(own, "/api/desk/files/"), s.next().File)
	a.do(http.MethodPut, foreign, put(1, "bobs", "x"), as("bob")).is(http.StatusOK, "")
	a.save(own, 1, "mine", "two").is(http.StatusOK, "")
	require.Equal(t, "mine", s.next().Rev)
}

// One user cannot take all the streams of a process from the others.
func TestEvents_AreBoundedForEachUser(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	var open []*http.Response
	for range desk.MaxStreamsOfUser {
		req, err := http.NewRequestWithContext(ctx, http.MethodGet, a.url+"/api/desk/events?files="+strings.TrimPrefix(file, "/api/desk/files/"), nil)
		require.NoError(t, err)
		req.Header.Set(userHeader, "ada")
		res, err := a.http.Do(req)
		require.NoError(t, err)
		defer res.Body.Close()
		require.Equal(t, http.StatusOK, res.StatusCode)
		open = append(open, res)
	}
	events := strings.Replace(file, "files/", "events?files=", 1)
	res := a.do(http.MethodHead, events, "")
	require.Equal(t, http.StatusTooManyRequests, res.status)
	require.Equal(t, "30", res.header.Get("Retry-After"))
	require.Equal(t, http.StatusOK, a.do(http.MethodHead, events, "", as("bob")).status)
	leave()
	for _, r := range open {
		_, _ = io.Copy(io.Discard, r.Body)
	}
	require.Eventually(t, func() bool { return a.do(http.MethodHead, events, "").status == http.StatusOK }, 60*time.Second, 20*time.Millisecond,
		"what a user has closed is free again")
}

func TestEvents_RefuseWhatIsNoFile(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	many := strings.TrimSuffix(strings.Repeat("fil_000000000000,", desk.MaxLook+1), ",")
	for _, query := range []string{"", "?files=", "?files=x", "?files=fil_000000000000,", "?files=" + many, "?files=fil_000000000000&other=1"} {
		a.get("/api/desk/events"+query).is(http.StatusBadRequest, "invalid")
	}
	_, err := a.store.Look(t.Context(), "ada", make([]desk.FileID, desk.MaxLook+1)...)
	require.ErrorIs(t, err, desk.ErrInvalid)
}

// The limits of a server that is meant for short requests do not end a stream.
func TestEvents_OutliveTheServersLimits(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	file := a.create("one")
	limited := httptest.NewUnstartedServer(a.handler)
	limited.Config.ReadTimeout, limited.Config.WriteTimeout = time.Second, time.Second
	limited.Start()
	t.Cleanup(func() { a.handler.Close(); limited.Close() })
	b := *a
	b.url = limited.URL
	s := b.watch(file)
	s.next()
	for version := int64(2); version <= 3; version++ { // a stream looks every two seconds
		a.save(file, version-1, fmt.Sprint("save-", version), "more").is(http.StatusOK, "")
		require.Equal(t, version, s.next().Version)
	}
}

// A server that shuts down does not wait for streams that would go on for minutes.
func TestEvents_EndWithTheHandler(t *testing.T) {
	t.Parallel()
	a := newAPI(t)
	s := a.watch(a.create("one"))
	s.next()
	a.handler.Close()
	a.handler.Close() // twice is once
	done := make(chan error, 1)
	go func() { _, err := io.ReadAll(s.read); done <- err }()
	select {
	case err := <-done:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		require.Fail(t, "the stream goes on")
	}
}
