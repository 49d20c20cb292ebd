package desk

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"
	"time"
)

const (
	// eventsPeriod is how often a stream looks. Hints need not be quick: the next save finds out in any case.
	eventsPeriod = 2 * time.Second
	// eventsLife ends a stream, so that who may not read any more is asked again. Browsers connect anew by themselves.
	eventsLife = 5 * time.Minute
	// maxStreams bounds the streams of a process, each of which asks the database every eventsPeriod.
	maxStreams = 500
	// maxStreamsOfUser keeps one user from taking all of them.
	maxStreamsOfUser = 50
)

// streams counts those that are open.
type streams struct {
	mu  sync.Mutex
	all int
	of  map[Owner]int
}

// open is false where there are enough.
func (s *streams) open(user Owner) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.all >= maxStreams || s.of[user] >= maxStreamsOfUser {
		return false
	}
	if s.of == nil {
		s.of = map[Owner]int{}
	}
	s.all++
	s.of[user]++
	return true
}

func (s *streams) close(user Owner) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all--
	if s.of[user]--; s.of[user] == 0 {
		delete(s.of, user)
	}
}

// hint says that a version is stored. It carries no content.
type hint struct {
	File    FileID `json:"file"`
	Version int64  `json:"version"`
	Rev     SaveID `json:"rev"`
	Deleted bool   `json:"deleted"`
}

// events streams hints about the files of a query, as server-sent events: first what is stored now, then what changes.
// It asks the table. Why no save notifies is in docs/adr/0010-hints-by-asking.md.
func (h *Handler) events(c *call) error {
	var bad faults
	query := c.query(&bad, "files")
	var ids []FileID
	for id := range strings.SplitSeq(query["files"], ",") {
		if !fileID.MatchString(id) {
			bad.add("files", id, "ids of files, with commas between them")
			continue
		}
		ids = append(ids, FileID(id))
	}
	if len(ids) > MaxLook {
		bad.add("files", "", "at most 100")
	}
	if err := bad.err(); err != nil {
		return err
	}
	if !h.streams.open(c.owner) {
		return &rateError{30 * time.Second}
	}
	defer h.streams.close(c.owner)

	ctx, cancel := context.WithTimeout(c.r.Context(), eventsLife)
	defer cancel()
	known := map[FileID]hint{}
	fresh, err := h.changes(ctx, c.owner, ids, known)
	if err != nil {
		return err
	}
	header := c.w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	out := http.NewResponseController(c.w)
	// The server's own limit is for answers that end.
	_ = out.SetWriteDeadline(time.Now().Add(eventsLife + time.Minute))
	if c.r.Method == http.MethodHead {
		return nil
	}
	ticker := time.NewTicker(eventsPeriod)
	defer ticker.Stop()
	for beat := 0; ; beat++ {
		text := ""
		for _, one := range fresh {
			body, err := json.Marshal(one)
			if err != nil {
				panic(err) // our own type
			}
			text += fmt.Sprintf("data: %s\n\n", body)
		}
		if text == "" && beat%8 == 0 {
			text = ":\n\n" // so that proxies do not take it for dead, and we see that nobody reads
		}
		if text != "" {
			if _, err := c.w.Write([]byte(text)); err != nil || out.Flush() != nil {
				return nil // nobody reads
			}
		}
		select {
		case <-ctx.Done():
			return nil
		case <-h.closing:
			return nil
		case <-ticker.C:
		}
		if fresh, err = h.changes(ctx, c.owner, ids, known); err != nil {
			return nil // the stream has begun: the browser connects anew, and learns why
		}
	}
}

// changes looks, and returns what is not known yet.
func (h *Handler) changes(ctx context.Context, owner Owner, ids []FileID, known map[FileID]hint) ([]hint, error) {
	ctx, cancel := context.WithTimeout(ctx, h.cfg.Timeout)
	defer cancel()
	files, err := h.store.Look(ctx, owner, ids...)
	if err != nil {
		return nil, err
	}
	var out []hint
	for i := range files {
		f := &files[i]
		now := hint{f.ID, f.Version, f.Rev, f.DeletedAt != nil}
		if known[f.ID] != now {
			known[f.ID] = now
			out = append(out, now)
		}
	}
	return out, nil
}

// Close ends the streams of hints, which would otherwise outlast a server's shutdown. Requests are still answered.
func (h *Handler) Close() { h.closeOnce.Do(func() { close(h.closing) }) }
