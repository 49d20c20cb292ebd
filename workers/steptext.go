package workers

import (
	"fmt"
	"regexp"
	"strings"
	"sync"
	"time"
)

var (
	sqlComments   = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/`)
	endsTx        = regexp.MustCompile(`(?i)^\s*(?:(?:commit|end|abort|begin|start\s+transaction|prepare\s+transaction)\b|rollback\b(?:\s+(?:work|transaction))?\s*(?:$|;|and\b))`)
	beforeBracket = regexp.MustCompile(`(?:([\p{L}_][\p{L}\p{N}_$]*)|"((?:[^"]|"")+)")\s*\(`)
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
	// ends is how it would end the transaction, marks that it may change the session. calls are what may be functions.
	ends  string
	marks bool
	calls []string

	mu sync.Mutex
	// quickRuns is how often it has been carried out alone, quickly, and the session was as before.
	quickRuns int
	// proven: so it was, and none of what it calls may set what nobody can look at.
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
	text := &stepText{marks: marksSession.MatchString(bare), calls: callsOf(bare)}
	for _, one := range statements {
		if text.ends == "" && endsTx.MatchString(one) {
			text.ends = fmt.Sprintf("%.40q", strings.TrimSpace(one))
		}
	}
	return text
}

// callsOf are the names before a bracket.
func callsOf(bare string) []string {
	names := []string{} // not nil, which would be NULL
	for _, m := range beforeBracket.FindAllStringSubmatch(bare, -1) {
		name := strings.ToLower(m[1])
		if quoted := m[2]; quoted != "" {
			name = strings.ReplaceAll(quoted, `""`, `"`)
		}
		names = append(names, name)
	}
	return names
}

// quick notes that it was carried out alone and harmed nobody. look says that it is time to look at what it calls: at the
// second time, so that a text that never comes again costs nothing.
func (t *stepText) quick() (look bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.quickRuns++
	return t.quickRuns == 2
}

// prove lets it share transactions.
func (t *stepText) prove() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.proven = true
}

// callsNothingOfOnesOwn says that none of the names is a volatile function beside PostgreSQL's own. One may set, for the
// transaction, what cannot be looked at afterwards: the tenant for a policy of row-level security, which is every
// application's own, and which the neighbours would have.
const callsNothingOfOnesOwn = `select not exists (select from pg_catalog.pg_proc p
    where p.proname = any($1::text[]) and p.provolatile = 'v' and p.pronamespace <> 'pg_catalog'::regnamespace)`

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
