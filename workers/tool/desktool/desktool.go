// Package desktool has the tools by which approved plans change documents of package desk. Each goes through desk's own
// versioned calls: a document that somebody saved meanwhile is a version conflict that ends the plan, and is never
// overwritten; a browser that has the document open meets a conflict in its turn.
//
//	set := desktool.New(store)
//	client, err := jobs.NewClient(pool, &jobs.Config{Tools: set.Declarations()})
//	fleet, err := workers.New(pool, &workers.Config{Tools: set.Tools()})
//
// The plan's owner is whose documents are changed. Names are not versioned; desk_rename_file takes the expected one.
package desktool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/tool"
)

// The names of the tools.
const (
	UpdateCells       = "desk_update_cells"
	RenameFile        = "desk_rename_file"
	UpdateMarkdown    = "desk_update_markdown"
	CreateSpreadsheet = "desk_create_spreadsheet"
	CreateMarkdown    = "desk_create_markdown"
	DeleteFile        = "desk_delete_file"
)

// writer is who saves, for whoever meets a conflict.
const writer desk.WriterID = "approved-plan"

// Set is the six tools over one store. It is safe for concurrent use.
type Set struct {
	store *desk.Store
	tools []tool.Tool
}

// New makes the tools. The store's own pool is not used: every call is in the step's transaction.
func New(store *desk.Store) *Set {
	s := &Set{store: store}
	s.add(UpdateCells, "Sets or clears cells of a spreadsheet.", schemaUpdateCells, s.updateCells, s.undoCells)
	s.add(RenameFile, "Renames a file.", schemaRename, s.rename, s.undoRename)
	s.add(UpdateMarkdown, "Replaces the text of a markdown file.", schemaUpdateMarkdown, s.updateMarkdown, s.undoMarkdown)
	s.add(CreateSpreadsheet, "Makes a spreadsheet.", schemaCreateSpreadsheet, s.createSpreadsheet, s.undoCreate)
	s.add(CreateMarkdown, "Makes a markdown file.", schemaCreateMarkdown, s.createMarkdown, s.undoCreate)
	s.add(DeleteFile, "Deletes a file. Its owner can restore it.", schemaDelete, s.delete, nil)
	return s
}

func (s *Set) add(name, description, schema string, run func(context.Context, pgx.Tx, tool.Call) (any, error), undo jobs.UndoFunc) {
	decl := jobs.MustTool(name, jobs.ToolConfig{Description: description, Schema: json.RawMessage(schema), Effect: jobs.Transactional, Undo: undo})
	s.tools = append(s.tools, tool.Transactional(decl, func(ctx context.Context, tx pgx.Tx, call tool.Call) (any, error) {
		out, err := run(ctx, tx, call)
		return out, explain(err)
	}))
}

// Declarations are for jobs.Config.Tools, of whoever proposes plans.
func (s *Set) Declarations() []*jobs.Tool {
	out := make([]*jobs.Tool, len(s.tools))
	for i, t := range s.tools {
		out[i] = t.Decl()
	}
	return out
}

// Tools are for workers.Config.Tools.
func (s *Set) Tools() []tool.Tool { return append([]tool.Tool(nil), s.tools...) }

// explain gives what desk refuses a code of its own.
func explain(err error) error {
	for _, c := range []struct {
		is   error
		code string
	}{
		{desk.ErrConflict, "version_conflict"},
		{desk.ErrNotFound, "not_found"},
		{desk.ErrDeleted, "file_deleted"},
		{desk.ErrFolderNotFound, "folder_not_found"},
		{desk.ErrSchemaOutdated, "schema_outdated"},
		{desk.ErrInvalid, "content_refused"},
	} {
		if errors.Is(err, c.is) {
			return tool.Refuse(c.code, err)
		}
	}
	return err
}

// saveID is the same for every try of a step, so that a save is never applied twice.
func saveID(call tool.Call) desk.SaveID {
	return desk.SaveID(fmt.Sprintf("plan-%s-%d", call.Run, call.Step))
}

// saved is what a step that changed content leaves in its receipt.
type saved struct {
	File    desk.FileID `json:"file"`
	Version int64       `json:"version"`
	// Before is what was there, for the step that takes it back.
	Before any `json:"before"`
}

func (s *Set) save(ctx context.Context, tx pgx.Tx, call tool.Call, file desk.FileID, expected int64, content desk.Content) (int64, error) {
	done, err := s.store.SaveTx(ctx, tx, desk.Owner(call.Owner), desk.Save{
		File: file, ID: saveID(call), Writer: writer, ExpectedVersion: expected, SchemaVersion: desk.SchemaVersion, Content: content,
	})
	if err != nil {
		return 0, err
	}
	return done.File.Version, nil
}

// lock locks a file and reads it without its content.
func (s *Set) lock(ctx context.Context, tx pgx.Tx, owner string, file desk.FileID) (*desk.File, error) {
	return s.store.DescribeTx(ctx, tx, desk.Owner(owner), file, desk.Metadata{})
}

// trail is how a document will stand when the steps that are undone before have been.
type trail struct {
	// base is the version that the last step that is undone was based on.
	base int64
	// version is the one that its undoing will have made.
	version int64
}

// follow says at which version the undoing of a step will find the document that the step brought from one version to
// the next, and that it has not moved on since.
func (s *Set) follow(ctx context.Context, tx pgx.Tx, done jobs.DoneStep, file desk.FileID, from, to int64) (int64, error) {
	key := "desk " + string(file)
	at, ok := done.Undone[key].(trail)
	if !ok {
		f, err := s.store.GetTx(ctx, tx, desk.Owner(done.Owner), file)
		switch {
		case errors.Is(err, desk.ErrNotFound), errors.Is(err, desk.ErrDeleted):
			return 0, fmt.Errorf("file %s: %w: %w", file, jobs.ErrMovedOn, err)
		case err != nil:
			return 0, err
		}
		at = trail{base: f.Version, version: f.Version}
	}
	if at.base != to {
		return 0, fmt.Errorf("file %s: the step made version %d, and version %d is there: %w", file, to, at.base, jobs.ErrMovedOn)
	}
	done.Undone[key] = trail{base: from, version: at.version + 1}
	return at.version, nil
}

func decode(raw json.RawMessage, into any) error {
	if err := json.Unmarshal(raw, into); err != nil {
		return fmt.Errorf("desk tool: %w", err)
	}
	return nil
}

func step(name string, args any) (*jobs.PlanStep, error) {
	raw, err := json.Marshal(args)
	if err != nil {
		return nil, fmt.Errorf("desk tool: %w", err)
	}
	return &jobs.PlanStep{Tool: name, Args: raw}, nil
}
