package workers

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

var (
	sqlComments = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/`)
	endsTx      = regexp.MustCompile(`(?i)^\s*(?:(?:commit|end|abort|begin|start\s+transaction|prepare\s+transaction)\b|rollback\b(?:\s+(?:work|transaction))?\s*(?:$|;|and\b))`)
	// What outlives a transaction in a session, or may hide what does.
	marksSession = regexp.MustCompile(`(?i)(?:^|;)\s*(?:set|reset|listen|unlisten|prepare|deallocate|discard|load|declare|do|call)\b|\bset_config\b|\bpg_(?:try_)?advisory_lock|\bcreate\s+(?:local\s+|global\s+)?temp`)
)

// stepTexts remembers the texts of steps' statements, of which an application has few. One that writes a new text each time
// has each looked at each time.
type stepTexts struct {
	mu    sync.Mutex
	known map[string]*stepText
}

const (
	maxTexts      = 1000
	maxTextLength = 4096
)

// stepText is what is known of one text.
type stepText struct {
	// ends is how it would end the transaction, marks that it may change the session.
	ends  string
	marks bool

	mu sync.Mutex
	// proven: it has been carried out alone, quickly, and the session was as before.
	proven bool
	// alone is until when it is not to share a transaction.
	alone time.Time
}

func (t *stepTexts) of(sql string) *stepText {
	if len(sql) > maxTextLength {
		return read(sql)
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := t.known[sql]; text != nil {
		return text
	}
	if t.known == nil || len(t.known) >= maxTexts {
		t.known = map[string]*stepText{}
	}
	text := read(sql)
	t.known[sql] = text
	return text
}

func read(sql string) *stepText {
	bare := strings.TrimSpace(sqlComments.ReplaceAllString(sql, " "))
	statements := []string{bare}
	if !strings.ContainsAny(bare, "'$\"") {
		statements = strings.Split(bare, ";") // nothing in it can hide a semicolon
	}
	text := &stepText{marks: marksSession.MatchString(bare)}
	for _, one := range statements {
		if text.ends == "" && endsTx.MatchString(one) {
			text.ends = fmt.Sprintf("%.40q", strings.TrimSpace(one))
		}
	}
	return text
}

// quick notes that it was carried out alone and harmed nobody.
func (t *stepText) quick() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.proven = true
}

// keepAlone keeps it out of groups for a while.
func (t *stepText) keepAlone() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.alone = time.Now().Add(aloneFor)
}

// sociable reports whether it may share a transaction now.
func (t *stepText) sociable() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.proven && !time.Now().Before(t.alone)
}
