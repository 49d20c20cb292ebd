package fencing

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgtype"
)

// Statement is SQL whose named parameters (@run) have been numbered once, when the program starts. Its text never
// changes, so that a connection prepares it once.
type Statement struct {
	Name  string
	SQL   string
	names []string
}

// Args are the values of a statement's named parameters.
type Args map[string]any

var parameter = regexp.MustCompile(`@[a-z_]+`)

// Compile numbers the named parameters of text, for a statement that is known when the program starts. Statements
// keeps a list of all, which tests read.
func Compile(name, text string) *Statement {
	s := Build(name, text)
	Statements = append(Statements, s)
	return s
}

// Build is Compile for a statement that depends on configuration, such as River's schema.
func Build(name, text string) *Statement { return build(name, text, 0) }

// build numbers the parameters after those that somebody else's text has used.
func build(name, text string, used int) *Statement {
	s := &Statement{Name: name}
	numbers := map[string]string{}
	s.SQL = parameter.ReplaceAllStringFunc(strings.TrimSpace(text), func(p string) string {
		if numbers[p] == "" {
			s.names = append(s.names, p[1:])
			numbers[p] = fmt.Sprintf("$%d", used+len(s.names))
		}
		return numbers[p]
	})
	return s
}

// Statements is every statement that was compiled. It is filled while packages initialise and only read afterwards.
var Statements []*Statement

// Texts are ids as a parameter of statements that enqueuers run too: in pgx's modes for transaction poolers a list of
// UUIDs cannot be encoded, since the parameter's type is not known there. The statement casts it: @ids::text[]::uuid[].
func Texts(ids []uuid.UUID) []string {
	out := make([]string, len(ids))
	for i, id := range ids {
		out[i] = id.String()
	}
	return out
}

// Bind returns the values in the order of the statement's parameters. A missing value is a bug of ours: it would be
// sent as NULL, and a fence on NULL matches nothing, so it stops the program instead. An id goes in pgx's own type: it
// would take the other for text.
func (s *Statement) Bind(args Args) []any {
	out := make([]any, len(s.names))
	for i, name := range s.names {
		v, ok := args[name]
		if !ok {
			panic("fencing: statement " + s.Name + ": no value for @" + name)
		}
		if id, ok := v.(uuid.UUID); ok {
			v = pgtype.UUID{Bytes: id, Valid: true}
		}
		out[i] = v
	}
	return out
}

// Rider is a common table expression that writes in the same statement as a transition. It may read fenced(id, attempt),
// which has no row when the fence is lost.
type Rider string

// Transition composes the statement of one event: lock, check and write the run, stamped by the database's clock after
// the lock was taken (R7), with the riders in the same statement. It is the only place that writes status.
//
// scope picks the rows, over r: one run by id, or a set. final is the statement that ends it, over fenced. Riders and final
// name each column of the run that they read as fenced.column: what nobody names does not come back.
func (m *Machine) Transition(name string, e Event, scope, final string, riders ...Rider) *Statement {
	rest := joinRiders(riders) + "\n" + final
	return Compile(m.Name+"/"+name, "with "+m.ctes(e, scope, rest)+rest)
}

// Composed is Transition with a common table expression of the user's in front of it, whose parameters $1 to $used come
// first. output is SQL for the run's output, over the user's rows.
func (m *Machine) Composed(name string, e Event, scope, user, output, final string, used int) *Statement {
	own := build(m.Name+"/"+name, strings.ReplaceAll(m.ctes(e, scope, final), "@output", output)+"\n"+final, used)
	own.SQL = "with " + user + ",\n" + own.SQL
	return own
}

func joinRiders(riders []Rider) string {
	var b strings.Builder
	for i, r := range riders {
		fmt.Fprintf(&b, ",\nrider%d as (%s)", i, r)
	}
	return b.String()
}

func (m *Machine) ctes(e Event, scope, rest string) string {
	order := ""
	if strings.Contains(scope, "any(") || e == Reap || e == Expire {
		order = " order by r.id"
	}
	lock := "for no key update of r"
	if e == Reap || e == Expire {
		lock = "limit @limit::int for no key update of r skip locked"
	}
	return fmt.Sprintf("locked as (%s%s %s\n), fenced as (%s\n    returning %s\n)",
		m.selection(e, scope), order, lock, m.update(e), strings.Join(returned(rest), ", "))
}

var fencedColumn = regexp.MustCompile(`\bfenced\.([a-z_]+)`)

// returned are the columns of the run that rest reads. The row is wide, and each of its columns would be copied for each run.
func returned(rest string) []string {
	columns := []string{"r.id"}
	for _, match := range fencedColumn.FindAllStringSubmatch(rest, -1) {
		if column := "r." + match[1]; !strings.HasPrefix(match[1], batchPrefix) && !slices.Contains(columns, column) {
			columns = append(columns, column)
		}
	}
	return columns
}

// selection picks the rows that the event may change, with what they become. It wants a locking clause.
func (m *Machine) selection(e Event, scope string) string {
	columns := []string{"r.id"}
	if effects[e].owner == gives && !effects[e].fenced {
		columns = append(columns, "r.lease_owner as owner")
	}
	if m.only(e) == "" {
		columns = append(columns, m.choose(e, func(t Transition) string { return quote(string(t.To)) }, "null")+" as to_status")
	}
	if m.codes(e) {
		columns = append(columns, m.choose(e, codeOf, "null")+" as to_code")
	}
	where := []string{scope, "r.status in (" + literals(m.from(e)) + ")"}
	if effects[e].fenced {
		where = append(where, "r.attempt = @attempt::bigint")
	}
	if g := m.onlyGuards(e); g != "" {
		where = append(where, g)
	}
	return fmt.Sprintf("\n    select %s\n    from weir.run r\n    where %s", strings.Join(columns, ", "), strings.Join(where, "\n      and "))
}

// update writes the rows of locked.
func (m *Machine) update(e Event) string {
	return fmt.Sprintf("\n    update weir.run r set %s\n    from locked where r.id = locked.id%s", strings.Join(m.assignments(e), ",\n        "), m.repeatedPredicate(e))
}

// only is the status that an event always leads to, or empty when the row decides.
func (m *Machine) only(e Event) Status {
	var to Status
	for _, from := range m.from(e) {
		for _, t := range m.Allowed(from, e) {
			if to != "" && to != t.To {
				return ""
			}
			to = t.To
		}
	}
	return to
}

// codes reports whether the table gives the event a code of its own.
func (m *Machine) codes(e Event) bool {
	return slices.ContainsFunc(m.Transitions, func(t Transition) bool { return t.Event == e && t.Code != "" })
}

// repeatedPredicate is F11: what was true of a candidate proves nothing about the row that is written.
func (m *Machine) repeatedPredicate(e Event) string {
	switch e {
	case Reap:
		return " and " + anyLeaseIsOver
	case Expire:
		return " and r.status in (" + literals(m.from(e)) + ") and r.expires_at <= clock_timestamp()"
	default:
		return ""
	}
}

func (m *Machine) assignments(e Event) []string {
	eff := effects[e]
	to, code := "locked.to_status", "locked.to_code"
	// when is SQL that is a value on the way to a status that is terminal, or not, and null otherwise.
	when := func(terminal bool, value string) string {
		not := ""
		if !terminal {
			not = "not "
		}
		return "case when " + not + to + " in (" + literals(m.Terminal) + ") then " + value + " end"
	}
	if status := m.only(e); status != "" {
		to = quote(string(status))
		when = func(terminal bool, value string) string {
			if slices.Contains(m.Terminal, status) == terminal {
				return value
			}
			return "null"
		}
	}
	if !m.codes(e) {
		code = "null"
	}
	set := []string{"status = " + to, "finished_at = " + when(true, "clock_timestamp()")}
	if eff.raisesAttempt {
		set = append(set, "attempt = r.attempt + 1")
	}
	if eff.failures != "" {
		set = append(set, "failures = "+eff.failures)
	}
	if eff.reaps != "" {
		set = append(set, "reaps = "+eff.reaps)
	}
	switch eff.owner {
	case takes:
		set = append(set, "lease_owner = @owner", "claimed_at = clock_timestamp()", "blocked_reason = null",
			"doorbell_id = @doorbell", "doorbell_attempted_at = @doorbell_attempted_at")
		fallthrough
	case renews:
		set = append(set, "lease_expires_at = clock_timestamp() + @lease::interval",
			"step_deadline_at = clock_timestamp() + @step_time::interval")
	case gives:
		set = append(set, "lease_owner = null", "lease_expires_at = null", "step_deadline_at = null")
	case keeps:
	}
	switch {
	case eff.owner == gives && eff.due == "":
		set = append(set, "next_attempt_at = null")
	case eff.due != "":
		set = append(set, "next_attempt_at = "+when(false, eff.due))
	}
	switch e {
	case Succeed, Redrive:
		set = append(set, "error_code = null", "error_message = null")
	case Refuse, FailTry, Snooze:
		set = append(set, "error_code = coalesce("+code+", @code)", "error_message = @message")
	case Reap, Cancel, Release, Reject, Expire:
		set = append(set, "error_code = coalesce("+code+", r.error_code)")
	case Approve:
		set = append(set, "expires_at = clock_timestamp() + @limit::interval")
	case Claim, StartStep, CommitStep, RequestCancel:
	}
	switch e {
	case Succeed:
		set = append(set, "output = @output")
		if m.Name == KindDelivery {
			set = append(set, "external_ref = @external_ref")
		}
	case Cancel, RequestCancel:
		set = append(set, "cancel_requested_at = coalesce(r.cancel_requested_at, clock_timestamp())",
			"cancel_code = coalesce(r.cancel_code, @cancel_code)")
	case Claim, StartStep, CommitStep, Refuse, FailTry, Snooze, Release, Reap, Redrive, Approve, Reject, Expire:
	}
	return set
}

// choose writes the table of an event as SQL: by status, then the guards in their order.
func (m *Machine) choose(e Event, value func(Transition) string, otherwise string) string {
	var b strings.Builder
	b.WriteString("case r.status")
	for _, from := range m.from(e) {
		rows := m.Allowed(from, e)
		fmt.Fprintf(&b, " when %s then ", quote(string(from)))
		if len(rows) == 1 {
			b.WriteString(value(rows[0]))
			continue
		}
		b.WriteString("case")
		for _, t := range rows {
			if t.When == Always {
				fmt.Fprintf(&b, " else %s", value(t))
			} else {
				fmt.Fprintf(&b, " when %s then %s", guards[t.When], value(t))
			}
		}
		b.WriteString(" end")
	}
	return b.String() + " else " + otherwise + " end"
}

// onlyGuards refuses the rows of a status whose single transition is guarded.
func (m *Machine) onlyGuards(e Event) string {
	var out []string
	for _, from := range m.from(e) {
		rows := m.Allowed(from, e)
		if last := rows[len(rows)-1]; last.When != Always {
			out = append(out, fmt.Sprintf("(r.status <> %s or %s)", quote(string(from)), guards[last.When]))
		}
	}
	return strings.Join(out, " and ")
}

func codeOf(t Transition) string {
	switch t.Code {
	case "":
		return "null"
	case CodeCanceled:
		if t.Event == Cancel {
			return "coalesce(r.cancel_code, @cancel_code, '" + CodeCanceled + "')"
		}
		return "coalesce(r.cancel_code, '" + CodeCanceled + "')"
	default:
		return quote(t.Code)
	}
}

func literals(list []Status) string {
	quoted := make([]string, len(list))
	for i, s := range list {
		quoted[i] = quote(string(s))
	}
	return strings.Join(quoted, ", ")
}

// quote is for the words of our own tables only, never for input.
func quote(word string) string { return "'" + word + "'" }
