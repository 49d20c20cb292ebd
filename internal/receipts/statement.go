package receipts

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/weirqueue/weir/internal/fencing"
)

// ErrTouchedNothing says that a step's statement affected no row.
var ErrTouchedNothing = errors.New("weir: the step's statement touched no row")

// ErrOutputTooLarge says that the rows that a step's statement returned are more than a receipt holds.
var ErrOutputTooLarge = errors.New("weir: the rows of the step's statement are too large for its receipt")

// ErrParameters says that a statement names other parameters than it has values for. It would take ours for its own.
var ErrParameters = errors.New("weir: the step's statement has parameters without a value")

// maxOutputText bounds what a statement returns into its receipt, in bytes.
const maxOutputText = "1048576"

// The user's statement is executed to its end before the fence is locked: it may wait for other rows, and whoever waits
// with the run's lock keeps the reaper waiting (F4).
const afterUserRows = ownRun + ` and (select count(*) from weir_user_rows) is not null`

// A newline before the bracket: the user's text may end in a comment. The user's parameters come first, so that their
// numbers stay. A NULL effect means that the step is done already, a NULL outcome that it touched nothing, and a NULL
// name that its output is too large.
const statementFinal = `insert into weir.receipt (run_id, step_index, step_name, effect, outcome, attempt, output)
values (@run, @step_index::integer,
    case when coalesce((select sum(octet_length(to_jsonb(weir_user_rows)::text)) from weir_user_rows), 0) <= ` + maxOutputText + ` then @step_name end, 'transactional',
    case when exists (select from weir_user_rows) then 'ok' end,
    (select fenced.attempt from fenced), (select jsonb_agg(to_jsonb(weir_user_rows)) from weir_user_rows))
on conflict (run_id, step_index) do update
    set effect = case when receipt.outcome <> 'ok' then excluded.effect end, outcome = excluded.outcome, step_name = excluded.step_name,
        attempt = excluded.attempt, output = excluded.output, external_ref = null, recorded_at = clock_timestamp()
returning output::text`

// StatementFence is a step of one statement of the user's, with fence and receipt in the same statement.
type StatementFence struct {
	StepFence
	SQL  string
	Args []any
	// SessionChanged becomes true when a function that the statement called has changed the session.
	SessionChanged *bool
}

// Sender is what sends several statements in one round trip. Outside a transaction they are one transaction then.
type Sender interface {
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// bound ends the statement on the server, also when nobody is left to ask for it (R11).
const bound = `select set_config('statement_timeout', $1, true), set_config('lock_timeout', $2, true), ` + NoteSession

// longestLockWait bounds a statement's wait for a row: to try again costs nothing (55P03), and whoever waits for the
// run's lock at the end holds the locks of the user's rows.
const longestLockWait = 10 * time.Second

// Execute runs it: one round trip that commits by itself. It returns the rows that the user's statement returned, as
// JSON. It returns ErrLeaseLost, ErrAlreadyDone or ErrTouchedNothing when nothing was committed. It takes StepTime at
// most, by the server's own watch; a wait for one lock takes half of that, and at most 10 s.
func (f StatementFence) Execute(ctx context.Context, db Sender) (json.RawMessage, error) {
	sql, args, err := f.statement(false)
	if err != nil {
		return nil, err
	}
	batch := &pgx.Batch{}
	batch.Queue(bound, milliseconds(f.StepTime), milliseconds(min(f.StepTime/2, longestLockWait)))
	var (
		out  *string
		same = true
	)
	batch.Queue(sql, args...).QueryRow(func(row pgx.Row) error { return row.Scan(&out, &same) })
	if err := f.mapError(db.SendBatch(ctx, batch).Close()); err != nil {
		return nil, err
	}
	if f.SessionChanged != nil && !same {
		*f.SessionChanged = true
	}
	return rawJSON(out), nil
}

// mapError tells by SQLSTATE, table and column what a refused statement means.
func (f StatementFence) mapError(err error) error {
	var pgErr *pgconn.PgError
	if errors.As(err, &pgErr) && pgErr.Code == "23502" && pgErr.SchemaName == "weir" && pgErr.TableName == "receipt" {
		switch pgErr.ColumnName {
		case "outcome":
			return fmt.Errorf("step %d of run %s: %w", f.Step.Index, f.Run, ErrTouchedNothing)
		case "step_name":
			return fmt.Errorf("step %d of run %s: %w", f.Step.Index, f.Run, ErrOutputTooLarge)
		}
	}
	return f.MapError(err)
}

func rawJSON(text *string) json.RawMessage {
	if text == nil {
		return nil
	}
	return json.RawMessage(*text)
}

// statement is what is executed, with its values. In a group the session is looked at once, at the end.
func (f StatementFence) statement(grouped bool) (sql string, args []any, err error) {
	c := f.compose(grouped)
	if c.highest > len(f.Args) {
		return "", nil, fmt.Errorf("step %d of run %s: %w: it names $%d and has %d", f.Step.Index, f.Run, ErrParameters, c.highest, len(f.Args))
	}
	return c.SQL, append(append([]any{}, f.Args...), c.Bind(fencing.Args{
		"run": f.Run, "attempt": f.Attempt, "lease": f.Lease, "step_time": f.StepTime,
		"step_index": f.Step.Index, "step_name": f.Step.Name, "external_ref": nil,
	})...), nil
}

type composedKey struct {
	machine, sql string
	args         int
	last         bool
	grouped      bool
}

// composed keeps the texts, so that the statement cache of a connection sees the same one again. Applications have few
// statements; one that writes a new text each time is composed each time.
var composed struct {
	sync.Mutex
	texts map[composedKey]composedStatement
}

type composedStatement struct {
	*fencing.Statement
	// highest is the highest parameter that the user's text names.
	highest int
}

const maxComposed = 1000

func (f StatementFence) compose(grouped bool) composedStatement {
	m := fencing.MachineOf(f.Kind)
	key := composedKey{machine: m.Name, sql: f.SQL, args: len(f.Args), last: f.Last, grouped: grouped}
	composed.Lock()
	defer composed.Unlock()
	if s, ok := composed.texts[key]; ok {
		return s
	}
	event := fencing.CommitStep
	if f.Last {
		event = fencing.Succeed
	}
	final := statementFinal
	if !grouped {
		final += ", " + SameSession
	}
	own := m.Composed("statement step", event, afterUserRows, "weir_user_rows as (\n"+strings.TrimRight(strings.TrimSpace(f.SQL), ";")+"\n)",
		"(select jsonb_agg(to_jsonb(weir_user_rows)) from weir_user_rows)", final, len(f.Args))
	if composed.texts == nil || len(composed.texts) >= maxComposed {
		composed.texts = map[composedKey]composedStatement{}
	}
	s := composedStatement{own, highestParameter(f.SQL)}
	composed.texts[key] = s
	return s
}

func milliseconds(d time.Duration) string { return strconv.FormatInt(max(d.Milliseconds(), 1), 10) }
