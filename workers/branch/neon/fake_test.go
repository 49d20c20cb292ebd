package neon_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

const key = "napi_secret_0123456789"

type fakeBranch struct {
	ID       string    `json:"id"`
	Name     string    `json:"name"`
	ParentID string    `json:"parent_id,omitempty"`
	State    string    `json:"current_state"`
	Created  time.Time `json:"created_at"`
}

type fakeOperation struct {
	ID       string    `json:"id"`
	Project  string    `json:"project_id"`
	BranchID string    `json:"branch_id,omitempty"`
	Action   string    `json:"action"`
	Status   string    `json:"status"`
	Error    string    `json:"error,omitempty"`
	Created  time.Time `json:"created_at"`
	words    []string  // what the next polls say; the last one stays
}

// fakeNeon speaks the part of Neon's API that is used, in the shapes of its public description, and misbehaves as told.
type fakeNeon struct {
	*httptest.Server

	mu         sync.Mutex
	branches   []fakeBranch
	operations []*fakeOperation // newest first
	restores   []map[string]any // every restore that was applied, in order
	requests   []string
	words      []string // what the operations of a restore say
	page       int      // operations and branches a page; 0 is all

	// before answers a request instead of the API where it returns true; applied does so after a restore was applied.
	before, applied func(w http.ResponseWriter, r *http.Request) bool
}

func newFake(t testing.TB) *fakeNeon {
	f := &fakeNeon{words: []string{"scheduling", "running", "finished"}}
	f.branches = []fakeBranch{
		{ID: "br-main", Name: "main", State: "ready", Created: time.Now().Add(-time.Hour)},
		{ID: "br-dev", Name: "dev", ParentID: "br-main", State: "ready", Created: time.Now().Add(-time.Hour)},
	}
	f.Server = httptest.NewServer(http.HandlerFunc(f.serve))
	t.Cleanup(f.Close)
	return f
}

func (f *fakeNeon) restored() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.restores)
}

func (f *fakeNeon) asked(prefix string) (n int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, r := range f.requests {
		if strings.HasPrefix(r, prefix) {
			n++
		}
	}
	return n
}

func (f *fakeNeon) serve(w http.ResponseWriter, r *http.Request) {
	f.mu.Lock()
	f.requests = append(f.requests, r.Method+" "+r.URL.Path)
	before, applied := f.before, f.applied
	f.mu.Unlock()
	if r.Header.Get("Authorization") != "Bearer "+key {
		fail(w, 401, "", "this key does not have access: "+r.Header.Get("Authorization"))
		return
	}
	if before != nil && before(w, r) {
		return
	}
	path, ok := strings.CutPrefix(r.URL.Path, "/api/v2/projects/p1/")
	if !ok {
		fail(w, 404, "", "project not found")
		return
	}
	f.mu.Lock()
	answer := f.answer(w, r, path)
	f.mu.Unlock()
	if answer == nil {
		return
	}
	if r.Method == http.MethodPost && applied != nil && applied(w, r) {
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(answer)
}

func (f *fakeNeon) answer(w http.ResponseWriter, r *http.Request, path string) any {
	parts := strings.Split(path, "/")
	switch {
	case r.Method == http.MethodGet && path == "branches":
		var list []fakeBranch
		for _, b := range f.branches {
			if s := r.URL.Query().Get("search"); strings.Contains(b.Name, s) || b.ID == s {
				list = append(list, b)
			}
		}
		from, to, next := f.bounds(r, len(list))
		return map[string]any{"branches": list[from:to], "pagination": map[string]any{"next": next, "sort_by": "name"}}
	case r.Method == http.MethodGet && path == "operations":
		from, to, next := f.bounds(r, len(f.operations))
		return map[string]any{"operations": f.operations[from:to], "pagination": map[string]any{"cursor": next}}
	case r.Method == http.MethodGet && len(parts) == 2 && parts[0] == "branches":
		if b := f.branch(parts[1]); b != nil {
			return map[string]any{"branch": b}
		}
		fail(w, 404, "", "branch not found")
	case r.Method == http.MethodGet && len(parts) == 2 && parts[0] == "operations":
		for _, o := range f.operations {
			if o.ID == parts[1] {
				if len(o.words) > 0 {
					o.Status, o.words = o.words[0], o.words[1:]
				}
				return map[string]any{"operation": o}
			}
		}
		fail(w, 404, "", "operation not found")
	case r.Method == http.MethodPost && len(parts) == 3 && parts[2] == "restore":
		return f.restore(w, r, parts[1])
	default:
		fail(w, 404, "", "no such path")
	}
	return nil
}

func (f *fakeNeon) bounds(r *http.Request, n int) (from, to int, next string) {
	_, _ = fmt.Sscan(r.URL.Query().Get("cursor"), &from)
	to = n
	if f.page > 0 && from+f.page < n {
		to = from + f.page
		next = fmt.Sprint(to)
	}
	return min(from, n), to, next
}

func (f *fakeNeon) branch(id string) *fakeBranch {
	for i := range f.branches {
		if f.branches[i].ID == id {
			return &f.branches[i]
		}
	}
	return nil
}

func (f *fakeNeon) restore(w http.ResponseWriter, r *http.Request, id string) any {
	var body map[string]any
	_ = json.NewDecoder(r.Body).Decode(&body)
	source, _ := body["source_branch_id"].(string)
	name, _ := body["preserve_under_name"].(string)
	b := f.branch(id)
	children := false
	for _, c := range f.branches {
		children = children || c.ParentID == id
	}
	switch {
	case b == nil || f.branch(source) == nil:
		fail(w, 404, "", "branch not found")
		return nil
	case source == id && body["source_timestamp"] == nil:
		fail(w, 422, "", "source_timestamp or source_lsn is required")
		return nil
	case (source == id || children) && name == "":
		fail(w, 422, "", "preserve_under_name is required")
		return nil
	}
	for _, c := range f.branches {
		if c.Name == name {
			fail(w, 409, "BRANCH_ALREADY_EXISTS", "branch already exists")
			return nil
		}
	}
	f.restores = append(f.restores, body)
	n := len(f.restores)
	now := time.Now()
	backup := fakeBranch{ID: fmt.Sprintf("br-backup-%d", n), Name: name, ParentID: b.ParentID, State: "ready", Created: now}
	for i := range f.branches { // the children move to the backup
		if f.branches[i].ParentID == id {
			f.branches[i].ParentID = backup.ID
		}
	}
	f.branches = append(f.branches, backup)
	var ops []*fakeOperation
	for i, action := range []string{"create_branch", "apply_config"} {
		ops = append(ops, &fakeOperation{
			ID: fmt.Sprintf("op-%d-%d", n, i), Project: "p1", BranchID: id, Action: action, Status: "scheduling", Created: now, words: append([]string(nil), f.words...),
		})
	}
	f.operations = append(append([]*fakeOperation(nil), ops...), f.operations...)
	return map[string]any{"branch": b, "operations": ops}
}

func fail(w http.ResponseWriter, status int, code, message string) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(map[string]any{"request_id": "r", "code": code, "message": message})
}

// hangUp ends the connection without an answer.
func hangUp(w http.ResponseWriter) bool {
	c, _, err := w.(http.Hijacker).Hijack()
	if err == nil {
		_ = c.Close()
	}
	return true
}
