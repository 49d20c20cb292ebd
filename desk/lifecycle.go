package desk

import (
	"context"

	"github.com/jackc/pgx/v5"
)

var duplicateFile = compile("duplicate file", `
with source as (
    select * from desk.file where id = @source::text and owner = @owner::text and deleted_at is null
), f as (
    insert into desk.file (id, owner, type, name, folder_id, ai_context, rev, schema_version, content)
    select @id::text, s.owner, s.type, left(s.name, 193) || ' (copy)', s.folder_id, s.ai_context, @rev::text, s.schema_version, s.content
    from source s
    on conflict (id) do nothing
    returning *
), noted as (
    insert into desk.save (file_id, save_id, version, hash) select f.id, f.rev, f.version, sha256(convert_to(f.content::text, 'UTF8')) from f
)
select `+fileColumns+`, f.content::text from f`)

// Duplicate makes a new file of the stored version of another one, beside it, with " (copy)" after its name. The error
// is ErrNotFound or ErrDeleted.
func (s *Store) Duplicate(ctx context.Context, owner Owner, id FileID) (*File, error) {
	if !fileID.MatchString(string(id)) || owner.validate() != nil {
		return nil, ErrNotFound
	}
	return mint(ctx, s.pool, duplicateFile, args{"source": id, "owner": owner}, func() error { return s.stateOf(ctx, s.pool, owner, id) })
}

var deleteFile = compile("delete file", `
update desk.file f set deleted_at = coalesce(f.deleted_at, clock_timestamp())
where f.id = @id::text and f.owner = @owner::text returning f.id`)

// Delete marks a file as deleted; Restore brings it back. Deleting a deleted file changes nothing. The error is
// ErrNotFound.
func (s *Store) Delete(ctx context.Context, owner Owner, id FileID) error {
	return s.delete(ctx, s.pool, owner, id)
}

// DeleteTx is Delete in the caller's transaction.
func (s *Store) DeleteTx(ctx context.Context, tx pgx.Tx, owner Owner, id FileID) error {
	if err := given(tx); err != nil {
		return err
	}
	return s.delete(ctx, tx, owner, id)
}

func (s *Store) delete(ctx context.Context, on db, owner Owner, id FileID) error {
	if !fileID.MatchString(string(id)) || owner.validate() != nil {
		return ErrNotFound
	}
	var deleted FileID
	found, err := first(ctx, on, deleteFile, args{"id": id, "owner": owner}, &deleted)
	if err == nil && !found {
		err = ErrNotFound
	}
	return err
}

var restoreFile = compile("restore file", `
update desk.file f set deleted_at = null where f.id = @id::text and f.owner = @owner::text
returning `+fileColumns+`, f.content::text`)

// Restore takes a deletion back. The file is in its folder again, or in the root when the folder was deleted, at the
// version that it had. Restoring a file that is not deleted changes nothing. The error is ErrNotFound.
func (s *Store) Restore(ctx context.Context, owner Owner, id FileID) (*File, error) {
	if !fileID.MatchString(string(id)) || owner.validate() != nil {
		return nil, ErrNotFound
	}
	var f File
	found, err := first(ctx, s.pool, restoreFile, args{"id": id, "owner": owner}, f.scannersWithContent()...)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &f, nil
}

var readState = compile("read state", `
select f.deleted_at is not null from desk.file f where f.id = @id::text and f.owner = @owner::text`)

// stateOf says why a file cannot be had, if it cannot.
func (s *Store) stateOf(ctx context.Context, on db, owner Owner, id FileID) error {
	var deleted bool
	found, err := first(ctx, on, readState, args{"id": id, "owner": owner}, &deleted)
	switch {
	case err != nil:
		return err
	case !found:
		return ErrNotFound
	case deleted:
		return ErrDeleted
	}
	return nil
}
