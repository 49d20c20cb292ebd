package jobs

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/santhosh-tekuri/jsonschema/v6"
	"golang.org/x/text/language"
	"golang.org/x/text/message"

	"github.com/weirqueue/weir/internal/plan"
)

// MaxToolSchemaBytes bounds the JSON Schema of a tool.
const MaxToolSchemaBytes = 64 << 10

// ToolConfig declares a tool.
type ToolConfig struct {
	// Description is shown to whoever approves. At most 1,000 bytes.
	Description string
	// Schema is the JSON Schema of the arguments, draft 2020-12 unless it says otherwise. It is required, and may not refer
	// to other documents. Arguments are checked against it when a plan is proposed, and again before each call.
	Schema json.RawMessage
	// Effect is what the tool does; see Effect. It is required.
	Effect Effect
	// Undo makes the call that takes a call back, for CompensatePlan. Nil means that it cannot be taken back.
	Undo UndoFunc
}

// UndoFunc returns the call that undoes one that committed, or an error that matches ErrMovedOn or ErrNoInverse. It may
// read in tx, and writes nothing.
type UndoFunc func(ctx context.Context, tx pgx.Tx, done DoneStep) (*PlanStep, error)

// DoneStep is a step that committed.
type DoneStep struct {
	// Owner is on whose behalf the plan was carried out.
	Owner string
	Step  int
	// Args are what was asked for, and Output what the receipt says.
	Args, Output json.RawMessage
	// Undone is shared by the steps of one compensation, which are asked in reverse: what the undoing of later steps will
	// have changed before this one's turn comes.
	Undone map[string]any
}

// Why a step is not undone; see UndoFunc.
var (
	// ErrMovedOn: what the step changed was changed again since.
	ErrMovedOn = errors.New("it was changed again since")
	// ErrNoInverse: what the step did cannot be taken back.
	ErrNoInverse = errors.New("it cannot be taken back")
)

// Tool is the declaration of a tool: everything but the function that carries a call out, which is bound in the worker.
// It is immutable and safe for concurrent use.
type Tool struct {
	name   string
	cfg    ToolConfig
	schema *jsonschema.Schema
	need   string
}

// NewTool declares a tool. The error is one or more *InvalidError.
func NewTool(name string, cfg ToolConfig) (*Tool, error) {
	t := &Tool{name: name, cfg: cfg}
	var faults []error
	if !stepName.MatchString(name) {
		faults = append(faults, invalid("Tool.Name", name, "a lower-case letter, then letters, digits and _, at most 63"))
	}
	faults = append(faults, validateText("ToolConfig.Description", cfg.Description, 1000))
	switch cfg.Effect {
	case Transactional, Idempotent, AtLeastOnce, Reconciled:
	default:
		faults = append(faults, invalid("ToolConfig.Effect", string(cfg.Effect), "transactional, idempotent, at_least_once or reconciled"))
	}
	schema, err := compileSchema(name, cfg.Schema)
	if err != nil {
		faults = append(faults, invalid("ToolConfig.Schema", string(cfg.Schema), "a JSON Schema of at most 64 KiB: "+err.Error()))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	t.schema = schema
	canonical, _, err := plan.Canonical(cfg.Schema)
	if err != nil {
		return nil, invalid("ToolConfig.Schema", string(cfg.Schema), "plain JSON: "+err.Error())
	}
	t.need = plan.Need(name, string(cfg.Effect), canonical)
	return t, nil
}

// MustTool is NewTool for a package variable: it panics where NewTool returns an error.
func MustTool(name string, cfg ToolConfig) *Tool {
	t, err := NewTool(name, cfg)
	if err != nil {
		panic(err)
	}
	return t
}

// noLoader keeps a schema from reading files or URLs.
type noLoader struct{}

func (noLoader) Load(url string) (any, error) {
	return nil, fmt.Errorf("it refers to another document, %s", url)
}

func compileSchema(name string, raw json.RawMessage) (*jsonschema.Schema, error) {
	if len(raw) == 0 || len(raw) > MaxToolSchemaBytes {
		return nil, fmt.Errorf("it has %d bytes", len(raw))
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(raw))
	if err != nil {
		return nil, err
	}
	url := "tool:" + name
	c := jsonschema.NewCompiler()
	c.UseLoader(noLoader{})
	c.AssertFormat()
	if err := c.AddResource(url, doc); err != nil {
		return nil, err
	}
	return c.Compile(url)
}

// Name is the tool's name.
func (t *Tool) Name() string { return t.name }

// Description is shown to whoever approves.
func (t *Tool) Description() string { return t.cfg.Description }

// Effect is what the tool does.
func (t *Tool) Effect() Effect { return t.cfg.Effect }

// Need is what a worker offers that has this tool, by exactly this declaration.
func (t *Tool) Need() string { return t.need }

// Check checks arguments and returns their canonical form. The error is an *InvalidError whose field begins with field.
func (t *Tool) Check(field string, args json.RawMessage) (json.RawMessage, error) {
	if len(args) == 0 {
		return nil, invalid(field, "", "there: a tool without arguments is called with {}")
	}
	canonical, value, err := plan.Canonical(args)
	if err != nil {
		return nil, invalid(field, string(args), "JSON that reads the same everywhere: "+err.Error())
	}
	if err := t.schema.Validate(value); err != nil {
		var off *jsonschema.ValidationError
		if !errors.As(err, &off) {
			return nil, invalid(field, string(canonical), err.Error())
		}
		for len(off.Causes) > 0 {
			off = off.Causes[0]
		}
		at := strings.Join(append([]string{field}, off.InstanceLocation...), ".")
		return nil, invalid(at, valueAt(value, off.InstanceLocation), "as the schema of "+t.name+" says: "+
			off.ErrorKind.LocalizedString(message.NewPrinter(language.English)))
	}
	return canonical, nil
}

// valueAt is what an error shows.
func valueAt(v any, path []string) string {
	for _, name := range path {
		members, ok := v.(map[string]any)
		if !ok {
			return ""
		}
		v = members[name]
	}
	text, err := json.Marshal(v)
	if err != nil {
		return ""
	}
	return string(text)
}
