package desk

import (
	"fmt"
	"regexp"
	"slices"
)

// Bounds of a document's content. Both hold; a client need check the characters only, by JSON.stringify(content).length.
const (
	// MaxContentCharacters is how long content may be as compact JSON, in UTF-16 units as JavaScript counts.
	MaxContentCharacters = 500_000
	// MaxContentBytes is the same in bytes of UTF-8, of which a UTF-16 unit takes at most three.
	MaxContentBytes = 3 * MaxContentCharacters
)

// SchemaVersion is the version of the content's form that this package reads and writes.
const SchemaVersion = 1

// Type is what a file is. It never changes.
type Type string

// The types, each with its form of content.
const (
	// TypeSpreadsheet: {"cells": {"A1": {"v": text, number or null, "f"?: text, "t"?: text}}, "columnMeta"?: {"A":
	// {"label"?: text, "width"?: number}} or null}, on a grid of 26 columns and 50 rows.
	TypeSpreadsheet Type = "spreadsheet"
	// TypeMarkdown: {"text": text}.
	TypeMarkdown Type = "markdown"
	// TypeRecord: {"attributes": {attribute id: any value}}.
	TypeRecord Type = "record"
)

func (t Type) known() bool { return t == TypeSpreadsheet || t == TypeMarkdown || t == TypeRecord }

const typeBound = "spreadsheet, markdown or record"

// Content is the checked content of a document. The zero value is no content. It is safe to copy and to share.
type Content struct {
	typ    Type
	json   string
	digest [32]byte
}

// Type is the type of file that the content is for.
func (c Content) Type() Type { return c.typ }

// JSON is the content as it is stored and sent.
func (c Content) JSON() []byte { return []byte(c.json) }

// IsZero reports that there is no content.
func (c Content) IsZero() bool { return c.typ == "" }

// Equal reports that both say the same, whatever the order of their keys.
func (c Content) Equal(other Content) bool { return c.typ == other.typ && c.digest == other.digest }

// ParseContent reads and checks content. Its type follows from its one key, as the types say. The error is an
// *InvalidError, several joined, or a *TooLargeError.
func ParseContent(raw []byte) (Content, error) {
	n, err := parseJSON("content", raw)
	if err != nil {
		return Content{}, err
	}
	return contentOf(&n)
}

// EmptyContent is what a new file of a type holds.
func EmptyContent(t Type) (Content, error) {
	switch t {
	case TypeSpreadsheet:
		return ParseContent([]byte(`{"cells":{},"columnMeta":null}`))
	case TypeMarkdown:
		return Markdown("")
	case TypeRecord:
		return ParseContent([]byte(`{"attributes":{}}`))
	}
	return Content{}, invalid("type", string(t), typeBound)
}

// Markdown makes the content of a markdown file.
func Markdown(s string) (Content, error) {
	return ParseContent(append(appendText([]byte(`{"text":`), s), '}'))
}

func contentOf(n *node) (Content, error) {
	typ, err := typeOf(n)
	if err != nil {
		return Content{}, err
	}
	out := n.compact(make([]byte, 0, len(n.raw)))
	if len(out) > MaxContentBytes {
		return Content{}, &TooLargeError{Field: "content", Size: int64(len(out)), Unit: "bytes", Bound: MaxContentBytes}
	}
	if size := utf16Length(out); size > MaxContentCharacters {
		return Content{}, &TooLargeError{Field: "content", Size: int64(size), Unit: "characters", Bound: MaxContentCharacters}
	}
	var faults faults
	switch typ {
	case TypeSpreadsheet:
		checkSpreadsheet(&faults, n)
	case TypeMarkdown:
		faults.only("content", n, "text")
		faults.kind("content.text", n.get("text"), text)
	case TypeRecord:
		checkRecord(&faults, n)
	}
	if err := faults.err(); err != nil {
		return Content{}, err
	}
	return Content{typ: typ, json: string(out), digest: n.digest()}, nil
}

func typeOf(n *node) (Type, error) {
	if n.kind == object {
		switch {
		case n.get("cells") != nil:
			return TypeSpreadsheet, nil
		case n.get("text") != nil:
			return TypeMarkdown, nil
		case n.get("attributes") != nil:
			return TypeRecord, nil
		}
	}
	return "", invalid("content", string(n.raw[:min(len(n.raw), maxShownValue+4)]),
		"an object with cells (a spreadsheet), text (markdown) or attributes (a record)")
}

// utf16Length counts UTF-16 units in valid UTF-8: one for each first byte, and one more where a rune has four bytes.
func utf16Length(b []byte) int {
	n := 0
	for _, c := range b {
		if c < 0x80 || c >= 0xc0 {
			n++
		}
		if c >= 0xf0 {
			n++
		}
	}
	return n
}

var (
	cellName   = regexp.MustCompile(`^[A-Z]([1-9]|[1-4][0-9]|50)$`)
	columnName = regexp.MustCompile(`^[A-Z]$`)
)

func checkSpreadsheet(f *faults, n *node) {
	f.only("content", n, "cells", "columnMeta")
	if cells := n.get("cells"); f.kind("content.cells", cells, object) {
		for i := range cells.members {
			name, cell := cells.members[i].name, &cells.members[i].value
			field := "content.cells." + shorten(name)
			if !cellName.MatchString(name) {
				f.add(field, name, "a cell from A1 to Z50")
				continue
			}
			if !f.kind(field, cell, object) {
				continue
			}
			f.only(field, cell, "v", "f", "t")
			f.kind(field+".v", cell.get("v"), text, number, null)
			f.optional(field+".f", cell.get("f"), text)
			f.optional(field+".t", cell.get("t"), text)
		}
	}
	meta := n.get("columnMeta")
	if meta == nil || !f.kind("content.columnMeta", meta, object, null) {
		return
	}
	for i := range meta.members {
		name, column := meta.members[i].name, &meta.members[i].value
		field := "content.columnMeta." + shorten(name)
		if !columnName.MatchString(name) {
			f.add(field, name, "a column from A to Z")
			continue
		}
		if f.kind(field, column, object) {
			f.only(field, column, "label", "width")
			f.optional(field+".label", column.get("label"), text)
			f.optional(field+".width", column.get("width"), number)
		}
	}
}

// maxAttributeID is how many characters the id of an attribute may have.
const maxAttributeID = 200

func checkRecord(f *faults, n *node) {
	f.only("content", n, "attributes")
	attributes := n.get("attributes")
	if !f.kind("content.attributes", attributes, object) {
		return
	}
	for i := range attributes.members {
		if name := attributes.members[i].name; name == "" || len([]rune(name)) > maxAttributeID {
			f.add("content.attributes", name, fmt.Sprintf("ids of 1 to %d characters", maxAttributeID))
		}
	}
}

// oneOf is for errors.
func oneOf(kinds []kind) string {
	names := map[kind]string{null: "null", boolean: "true or false", number: "a number", text: "text", array: "an array", object: "an object"}
	out := ""
	for i, k := range kinds {
		switch {
		case i == 0:
		case i == len(kinds)-1:
			out += " or "
		default:
			out += ", "
		}
		out += names[k]
	}
	return out
}

func (n *node) is(kinds ...kind) bool { return n != nil && slices.Contains(kinds, n.kind) }
