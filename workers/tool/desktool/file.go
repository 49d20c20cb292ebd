package desktool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/tool"
)

const (
	nameSchema   = `{"type": "string", "minLength": 1, "maxLength": 200}`
	folderSchema = `{"type": "string", "pattern": "^fld_[0-9a-f]{12}$"}`
)

var (
	schemaRename = `{"type": "object", "additionalProperties": false, "required": ["file", "name"], "properties": {
		"file": ` + fileSchema + `, "name": ` + nameSchema + `, "expectedName": ` + nameSchema + `}}`
	schemaCreateSpreadsheet = `{"type": "object", "additionalProperties": false, "required": ["name"], "properties": {
		"name": ` + nameSchema + `, "folder": ` + folderSchema + `, "cells": ` + strings.ReplaceAll(cellsSchema, "%CELL%", cellSchema) + `}}`
	schemaCreateMarkdown = `{"type": "object", "additionalProperties": false, "required": ["name"], "properties": {
		"name": ` + nameSchema + `, "folder": ` + folderSchema + `, "text": {"type": "string"}}}`
	schemaDelete = `{"type": "object", "additionalProperties": false, "required": ["file", "expectedVersion"], "properties": {
		"file": ` + fileSchema + `, "expectedVersion": ` + versionSchema + `}}`
)

func errNotA(f *desk.File, want desk.Type) error {
	return fmt.Errorf("file %s is a %s, not a %s", f.ID, f.Type, want)
}

type renameArgs struct {
	File         desk.FileID `json:"file"`
	Name         string      `json:"name"`
	ExpectedName *string     `json:"expectedName,omitempty"`
}

func (s *Set) rename(ctx context.Context, tx pgx.Tx, call tool.Call) (any, error) {
	var a renameArgs
	if err := decode(call.Args, &a); err != nil {
		return nil, err
	}
	f, err := s.lock(ctx, tx, call.Owner, a.File)
	if err != nil {
		return nil, err
	}
	if a.ExpectedName != nil && f.Name != *a.ExpectedName {
		return nil, tool.Refuse("name_changed", fmt.Errorf("file %s has another name than the expected one", a.File))
	}
	if _, err := s.store.DescribeTx(ctx, tx, desk.Owner(call.Owner), a.File, desk.Metadata{Name: &a.Name}); err != nil {
		return nil, err
	}
	return map[string]string{"file": string(a.File), "before": f.Name}, nil
}

func (s *Set) undoRename(ctx context.Context, tx pgx.Tx, done jobs.DoneStep) (*jobs.PlanStep, error) {
	var (
		a   renameArgs
		out struct {
			Before string `json:"before"`
		}
	)
	if err := decode(done.Args, &a); err != nil {
		return nil, err
	}
	if err := decode(done.Output, &out); err != nil {
		return nil, err
	}
	key := "desk name " + string(a.File)
	name, ok := done.Undone[key].(string)
	if !ok {
		f, err := s.store.GetTx(ctx, tx, desk.Owner(done.Owner), a.File)
		switch {
		case errors.Is(err, desk.ErrNotFound), errors.Is(err, desk.ErrDeleted):
			return nil, fmt.Errorf("file %s: %w: %w", a.File, jobs.ErrMovedOn, err)
		case err != nil:
			return nil, err
		}
		name = f.Name
	}
	if name != a.Name {
		return nil, fmt.Errorf("file %s was renamed: %w", a.File, jobs.ErrMovedOn)
	}
	done.Undone[key] = out.Before
	return step(RenameFile, renameArgs{File: a.File, Name: out.Before, ExpectedName: &name})
}

type createArgs struct {
	Name   string          `json:"name"`
	Folder desk.FolderID   `json:"folder"`
	Cells  json.RawMessage `json:"cells"`
	Text   string          `json:"text"`
}

func (s *Set) createSpreadsheet(ctx context.Context, tx pgx.Tx, call tool.Call) (any, error) {
	return s.create(ctx, tx, call, func(a createArgs) (desk.Content, error) {
		if len(a.Cells) == 0 {
			return desk.EmptyContent(desk.TypeSpreadsheet)
		}
		return desk.ParseContent([]byte(`{"cells":` + string(a.Cells) + `,"columnMeta":null}`))
	})
}

func (s *Set) createMarkdown(ctx context.Context, tx pgx.Tx, call tool.Call) (any, error) {
	return s.create(ctx, tx, call, func(a createArgs) (desk.Content, error) { return desk.Markdown(a.Text) })
}

func (s *Set) create(ctx context.Context, tx pgx.Tx, call tool.Call, content func(createArgs) (desk.Content, error)) (any, error) {
	var a createArgs
	if err := decode(call.Args, &a); err != nil {
		return nil, err
	}
	c, err := content(a)
	if err != nil {
		return nil, err
	}
	f, err := s.store.CreateTx(ctx, tx, desk.Owner(call.Owner), desk.NewFile{Name: a.Name, Folder: a.Folder, Content: c})
	if err != nil {
		return nil, err
	}
	return saved{File: f.ID, Version: f.Version}, nil
}

// undoCreate deletes what was made, if nobody has worked on it since.
func (s *Set) undoCreate(ctx context.Context, tx pgx.Tx, done jobs.DoneStep) (*jobs.PlanStep, error) {
	var out saved
	if err := decode(done.Output, &out); err != nil {
		return nil, err
	}
	version, err := s.follow(ctx, tx, done, out.File, 0, out.Version)
	if err != nil {
		return nil, err
	}
	return step(DeleteFile, deleteArgs{File: out.File, ExpectedVersion: version})
}

type deleteArgs struct {
	File            desk.FileID `json:"file"`
	ExpectedVersion int64       `json:"expectedVersion"`
}

func (s *Set) delete(ctx context.Context, tx pgx.Tx, call tool.Call) (any, error) {
	var a deleteArgs
	if err := decode(call.Args, &a); err != nil {
		return nil, err
	}
	f, err := s.lock(ctx, tx, call.Owner, a.File)
	if err != nil {
		return nil, err
	}
	if f.Version != a.ExpectedVersion {
		return nil, &desk.ConflictError{File: a.File, Current: desk.Current{Version: f.Version, Rev: f.Rev, SaveID: f.Rev, WriterID: f.WriterID, UpdatedAt: f.UpdatedAt}}
	}
	if err := s.store.DeleteTx(ctx, tx, desk.Owner(call.Owner), a.File); err != nil {
		return nil, err
	}
	return map[string]any{"file": a.File, "version": f.Version}, nil
}
