package desktool

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/weirqueue/weir/desk"
	"github.com/weirqueue/weir/jobs"
	"github.com/weirqueue/weir/workers/tool"
)

const (
	fileSchema    = `{"type": "string", "pattern": "^fil_[0-9a-f]{12}$"}`
	versionSchema = `{"type": "integer", "minimum": 1, "maximum": 9007199254740991}`
	cellsSchema   = `{"type": "object", "additionalProperties": false, "patternProperties": {"^[A-Z]([1-9]|[1-4][0-9]|50)$": %CELL%}}`
	cellSchema    = `{"type": "object", "additionalProperties": false, "required": ["v"], "properties": {
		"v": {"type": ["string", "number", "null"]}, "f": {"type": "string"}, "t": {"type": "string"}}}`
)

var (
	schemaUpdateCells = `{"type": "object", "additionalProperties": false, "required": ["file", "expectedVersion", "cells"], "properties": {
		"file": ` + fileSchema + `, "expectedVersion": ` + versionSchema + `,
		"cells": {"type": "object", "minProperties": 1, "additionalProperties": false, "patternProperties": {
			"^[A-Z]([1-9]|[1-4][0-9]|50)$": {"anyOf": [{"type": "null"}, ` + cellSchema + `]}}}}}`
	schemaUpdateMarkdown = `{"type": "object", "additionalProperties": false, "required": ["file", "expectedVersion", "text"], "properties": {
		"file": ` + fileSchema + `, "expectedVersion": ` + versionSchema + `, "text": {"type": "string"}}}`
)

type cellsArgs struct {
	File            desk.FileID                `json:"file"`
	ExpectedVersion int64                      `json:"expectedVersion"`
	Cells           map[string]json.RawMessage `json:"cells"`
}

// updateCells sets the cells that are given, and clears those that are null; all others stay.
func (s *Set) updateCells(ctx context.Context, tx pgx.Tx, call tool.Call) (any, error) {
	var a cellsArgs
	if err := decode(call.Args, &a); err != nil {
		return nil, err
	}
	// It locks nothing: when somebody saves after it, the save below is the one that finds out.
	f, err := s.store.GetTx(ctx, tx, desk.Owner(call.Owner), a.File)
	if err != nil {
		return nil, err
	}
	var sheet struct {
		Cells      map[string]json.RawMessage `json:"cells"`
		ColumnMeta json.RawMessage            `json:"columnMeta,omitempty"`
	}
	if f.Type != desk.TypeSpreadsheet {
		return nil, tool.Refuse("not_a_spreadsheet", errNotA(f, desk.TypeSpreadsheet))
	}
	if err := decode(f.Content, &sheet); err != nil {
		return nil, err
	}
	before := map[string]json.RawMessage{}
	for name, cell := range a.Cells {
		before[name] = json.RawMessage("null")
		if was, ok := sheet.Cells[name]; ok {
			before[name] = was
		}
		if string(cell) == "null" {
			delete(sheet.Cells, name)
		} else {
			sheet.Cells[name] = cell
		}
	}
	raw, err := json.Marshal(sheet)
	if err != nil {
		return nil, err
	}
	content, err := desk.ParseContent(raw)
	if err != nil {
		return nil, err
	}
	version, err := s.save(ctx, tx, call, a.File, a.ExpectedVersion, content)
	return saved{File: a.File, Version: version, Before: before}, err
}

func (s *Set) undoCells(ctx context.Context, tx pgx.Tx, done jobs.DoneStep) (*jobs.PlanStep, error) {
	var (
		a   cellsArgs
		out struct {
			Version int64                      `json:"version"`
			Before  map[string]json.RawMessage `json:"before"`
		}
	)
	if err := decode(done.Args, &a); err != nil {
		return nil, err
	}
	if err := decode(done.Output, &out); err != nil {
		return nil, err
	}
	version, err := s.follow(ctx, tx, done, a.File, a.ExpectedVersion, out.Version)
	if err != nil {
		return nil, err
	}
	return step(UpdateCells, cellsArgs{File: a.File, ExpectedVersion: version, Cells: out.Before})
}

type markdownArgs struct {
	File            desk.FileID `json:"file"`
	ExpectedVersion int64       `json:"expectedVersion"`
	Text            string      `json:"text"`
}

func (s *Set) updateMarkdown(ctx context.Context, tx pgx.Tx, call tool.Call) (any, error) {
	var a markdownArgs
	if err := decode(call.Args, &a); err != nil {
		return nil, err
	}
	f, err := s.store.GetTx(ctx, tx, desk.Owner(call.Owner), a.File)
	if err != nil {
		return nil, err
	}
	if f.Type != desk.TypeMarkdown {
		return nil, tool.Refuse("not_markdown", errNotA(f, desk.TypeMarkdown))
	}
	var was struct {
		Text string `json:"text"`
	}
	if err := decode(f.Content, &was); err != nil {
		return nil, err
	}
	content, err := desk.Markdown(a.Text)
	if err != nil {
		return nil, err
	}
	version, err := s.save(ctx, tx, call, a.File, a.ExpectedVersion, content)
	out := saved{File: a.File, Version: version}
	if len(was.Text) <= maxBefore {
		out.Before = was.Text
	}
	return out, err
}

// maxBefore is how long a text may be, in bytes, that a receipt keeps: escaped it must fit beside the rest. A longer one is
// still replaced, and cannot be brought back.
const maxBefore = 150_000

func (s *Set) undoMarkdown(ctx context.Context, tx pgx.Tx, done jobs.DoneStep) (*jobs.PlanStep, error) {
	var (
		a   markdownArgs
		out struct {
			Version int64   `json:"version"`
			Before  *string `json:"before"`
		}
	)
	if err := decode(done.Args, &a); err != nil {
		return nil, err
	}
	if err := decode(done.Output, &out); err != nil {
		return nil, err
	}
	if out.Before == nil {
		return nil, fmt.Errorf("the text that was there is too long for a receipt: %w", jobs.ErrNoInverse)
	}
	version, err := s.follow(ctx, tx, done, a.File, a.ExpectedVersion, out.Version)
	if err != nil {
		return nil, err
	}
	return step(UpdateMarkdown, markdownArgs{File: a.File, ExpectedVersion: version, Text: *out.Before})
}
