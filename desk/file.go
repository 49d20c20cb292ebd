package desk

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
)

// MaxNameCharacters is how long the name of a file or folder may be.
const MaxNameCharacters = 200

// DefaultName is what a file without a name is called.
const DefaultName = "Untitled"

// File is a document as it is stored. Times are the database's.
type File struct {
	ID            FileID          `json:"id"`
	Owner         Owner           `json:"owner"`
	Type          Type            `json:"type"`
	Name          string          `json:"name"`
	FolderID      *FolderID       `json:"folderId"` // null: the root
	AIContext     bool            `json:"aiContext"`
	Version       int64           `json:"version"`
	Rev           SaveID          `json:"rev"` // the save that made the version
	WriterID      *WriterID       `json:"writerId"`
	SchemaVersion int             `json:"schemaVersion"`
	CreatedAt     time.Time       `json:"createdAt"`
	UpdatedAt     time.Time       `json:"updatedAt"`
	DeletedAt     *time.Time      `json:"deletedAt"`
	Content       json.RawMessage `json:"content,omitempty"` // only from what reads a whole file
}

// fileColumns are those of a File but for its content, which lists and answers to saves leave out.
const fileColumns = `f.id, f.owner, f.type, f.name, f.folder_id, f.ai_context, f.version, f.rev, f.writer_id, f.schema_version,
    f.created_at, f.updated_at, f.deleted_at`

func (f *File) scanners() []any {
	return []any{
		&f.ID, &f.Owner, &f.Type, &f.Name, &f.FolderID, &f.AIContext, &f.Version, &f.Rev, &f.WriterID, &f.SchemaVersion,
		&f.CreatedAt, &f.UpdatedAt, &f.DeletedAt,
	}
}

func (f *File) scannersWithContent() []any { return append(f.scanners(), (*[]byte)(&f.Content)) }

func (f *File) current() Current {
	return Current{Version: f.Version, Rev: f.Rev, SaveID: f.Rev, WriterID: f.WriterID, UpdatedAt: f.UpdatedAt}
}

// NewFile is what Create makes a file of.
type NewFile struct {
	// Name is at most 200 characters. Empty is "Untitled".
	Name string
	// Folder is one of the owner's. Empty is the root.
	Folder FolderID
	// AIContext says that the file may be given to an assistant.
	AIContext bool
	// Content decides the file's type. It is required.
	Content Content
}

func (n *NewFile) validate() error {
	var f faults
	if n.Name != "" {
		checkName(&f, n.Name)
	}
	checkFolder(&f, "folderId", n.Folder)
	if n.Content.IsZero() {
		f.add("content", "", "there")
	}
	return f.err()
}

func checkName(f *faults, name string) {
	switch {
	case !utf8.ValidString(name), strings.ContainsFunc(name, unicode.IsControl):
		f.add("name", name, "UTF-8 without control characters")
	case strings.TrimSpace(name) == "", utf8.RuneCountInString(name) > MaxNameCharacters:
		f.add("name", name, fmt.Sprintf("1 to %d characters, and not blank", MaxNameCharacters))
	}
}

func checkFolder(f *faults, field string, id FolderID) {
	if id != "" && !folderID.MatchString(string(id)) {
		f.add(field, string(id), folderBound)
	}
}

var folderIsThere = compile("folder is there", `select `+noFolderOrOwn)

func (s *Store) checkFolderOf(ctx context.Context, on db, owner Owner, id FolderID) error {
	var there bool
	_, err := first(ctx, on, folderIsThere, args{"folder": nullable(id), "owner": owner}, &there)
	if err == nil && !there {
		err = ErrFolderNotFound
	}
	return err
}

// noFolderOrOwn is the check that a folder, when there is one, is the owner's.
const noFolderOrOwn = `(@folder::text is null or exists (select from desk.folder where id = @folder::text and owner = @owner::text))`

var createFile = compile("create file", `
with f as (
    insert into desk.file (id, owner, type, name, folder_id, ai_context, rev, schema_version, content)
    select @id::text, @owner::text, @type::text, @name::text, @folder::text, @ai_context::boolean, @rev::text, @schema::integer, @content::text::json
    where `+noFolderOrOwn+`
    on conflict (id) do nothing
    returning *
), noted as (
    insert into desk.save (file_id, save_id, version, hash) select f.id, f.rev, f.version, @hash::bytea from f
)
select `+fileColumns+`, f.content::text from f`)

// Create makes a file at version 1. The error is ErrInvalid or ErrFolderNotFound. It has no idempotency key: a caller
// that does not learn the answer and tries again may have two files.
func (s *Store) Create(ctx context.Context, owner Owner, n NewFile) (*File, error) {
	return s.create(ctx, s.pool, owner, n)
}

// CreateTx is Create in the caller's transaction.
func (s *Store) CreateTx(ctx context.Context, tx pgx.Tx, owner Owner, n NewFile) (*File, error) {
	if err := given(tx); err != nil {
		return nil, err
	}
	return s.create(ctx, tx, owner, n)
}

func (s *Store) create(ctx context.Context, on db, owner Owner, n NewFile) (*File, error) {
	if err := errors.Join(owner.validate(), n.validate()); err != nil {
		return nil, err
	}
	if n.Name == "" {
		n.Name = DefaultName
	}
	a := args{
		"owner": owner, "type": n.Content.typ, "name": n.Name, "folder": nullable(n.Folder), "ai_context": n.AIContext,
		"schema": SchemaVersion, "content": n.Content.json, "hash": n.Content.digest[:],
	}
	return mint(ctx, on, createFile, a, func() error { return s.checkFolderOf(ctx, on, owner, n.Folder) })
}

// mint runs a statement that makes a file under a new id. When it made none, why says the reason; no reason means that
// the id was taken.
func mint(ctx context.Context, on db, s statement, a args, why func() error) (*File, error) {
	for range mintTries {
		a["id"], a["rev"] = FileID("fil_"+random(6)), NewSaveID()
		var f File
		made, err := first(ctx, on, s, a, f.scannersWithContent()...)
		switch {
		case violates(err, "file_folder_fk"): // deleted in this very moment
			return nil, ErrFolderNotFound
		case err != nil:
			return nil, err
		case made:
			return &f, nil
		}
		if err := why(); err != nil {
			return nil, err
		}
	}
	return nil, fmt.Errorf("desk: %s: no id was free in %d tries", s.name, mintTries)
}

var readFile = compile("read file", `
select `+fileColumns+`, f.content::text from desk.file f where f.id = @id::text and f.owner = @owner::text`)

// Get reads a file with its content. The error is ErrNotFound or ErrDeleted.
func (s *Store) Get(ctx context.Context, owner Owner, id FileID) (*File, error) {
	return s.get(ctx, s.pool, owner, id)
}

// GetTx is Get in the caller's transaction. It locks nothing: SaveTx finds out whether somebody saved meanwhile.
func (s *Store) GetTx(ctx context.Context, tx pgx.Tx, owner Owner, id FileID) (*File, error) {
	if err := given(tx); err != nil {
		return nil, err
	}
	return s.get(ctx, tx, owner, id)
}

func (s *Store) get(ctx context.Context, on db, owner Owner, id FileID) (*File, error) {
	if !fileID.MatchString(string(id)) || owner.validate() != nil {
		return nil, ErrNotFound
	}
	var f File
	found, err := first(ctx, on, readFile, args{"id": id, "owner": owner}, f.scannersWithContent()...)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, ErrNotFound
	case f.DeletedAt != nil:
		return nil, ErrDeleted
	}
	return &f, nil
}

func nullable[T ~string](s T) *string {
	if s == "" {
		return nil
	}
	v := string(s)
	return &v
}
