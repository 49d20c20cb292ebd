package desk

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// Metadata is what a file has beside its content. It is not versioned: the last writer wins. A nil field is left alone.
type Metadata struct {
	Name *string
	// Folder is one of the owner's folders; the empty id is the root.
	Folder    *FolderID
	AIContext *bool
}

// IsZero reports that nothing is to be changed.
func (m Metadata) IsZero() bool { return m == Metadata{} }

func (m *Metadata) check(f *faults) {
	if m.Name != nil {
		checkName(f, *m.Name)
	}
	if m.Folder != nil {
		checkFolder(f, "folderId", *m.Folder)
	}
}

// folder is the folder as a parameter, and whether it is to be set.
func (m *Metadata) folder() (id *string, set bool) {
	if m.Folder == nil {
		return nil, false
	}
	return nullable(*m.Folder), true
}

var describeFile = compile("describe file", `
update desk.file f set
    name = coalesce(@name::text, f.name), ai_context = coalesce(@ai_context::boolean, f.ai_context),
    folder_id = case when @set_folder::boolean then @folder::text else f.folder_id end,
    updated_at = clock_timestamp()
where f.id = @id::text and f.owner = @owner::text and f.deleted_at is null and `+noFolderOrOwn+`
returning `+fileColumns)

// Describe changes metadata and leaves content and version alone: it neither conflicts with a save nor makes one
// conflict. It returns the file without its content. The error is ErrInvalid, ErrNotFound, ErrDeleted or
// ErrFolderNotFound.
func (s *Store) Describe(ctx context.Context, owner Owner, id FileID, m Metadata) (*File, error) {
	return s.describe(ctx, s.pool, owner, id, m)
}

// DescribeTx is Describe in the caller's transaction.
func (s *Store) DescribeTx(ctx context.Context, tx pgx.Tx, owner Owner, id FileID, m Metadata) (*File, error) {
	if err := given(tx); err != nil {
		return nil, err
	}
	return s.describe(ctx, tx, owner, id, m)
}

func (s *Store) describe(ctx context.Context, on db, owner Owner, id FileID, m Metadata) (*File, error) {
	if !fileID.MatchString(string(id)) || owner.validate() != nil {
		return nil, ErrNotFound
	}
	var bad faults
	m.check(&bad)
	if err := bad.err(); err != nil {
		return nil, err
	}
	folder, setFolder := m.folder()
	var f File
	done, err := first(ctx, on, describeFile, args{
		"id": id, "owner": owner, "name": m.Name, "ai_context": m.AIContext, "set_folder": setFolder, "folder": folder,
	}, f.scanners()...)
	switch {
	case violates(err, "file_folder_fk"):
		return nil, ErrFolderNotFound
	case err != nil:
		return nil, err
	case done:
		return &f, nil
	}
	if err := s.stateOf(ctx, on, owner, id); err != nil {
		return nil, err
	}
	return nil, ErrFolderNotFound
}
