package desk

import (
	"context"

	"github.com/jackc/pgx/v5"
)

// FolderChange renames or moves a folder. A nil field is left alone.
type FolderChange struct {
	Name *string
	// Parent is where the folder goes; the empty id is the root.
	Parent *FolderID
}

// IsZero reports that nothing is to be changed.
func (c FolderChange) IsZero() bool { return c == FolderChange{} }

// A folder may go to a place that is neither below it nor so deep that what is below it would be too deep.
var moveFolder = compile("move folder", depthOf+`, down as (
    select id, 1 as depth from desk.folder where id = @id::text and owner = @owner::text
    union all
    select c.id, down.depth + 1 from desk.folder c join down on c.parent_id = down.id where c.owner = @owner::text
)
update desk.folder f set
    name = coalesce(@name::text, f.name), parent_id = case when @set_parent::boolean then @parent::text else f.parent_id end,
    updated_at = clock_timestamp()
where f.id = @id::text and f.owner = @owner::text
    and (not @set_parent::boolean or @parent::text is null or (
        exists (select from up) and not exists (select from up where up.id = @id::text)
        and (select max(depth) from up) + (select max(depth) from down) <= @max_depth::integer))
returning `+folderColumns)

// ChangeFolder renames or moves a folder; the last writer wins. The error is ErrInvalid, ErrNotFound, ErrFolderExists,
// ErrFolderNotFound, or ErrFolderCycle.
func (s *Store) ChangeFolder(ctx context.Context, owner Owner, id FolderID, c FolderChange) (*Folder, error) {
	if !folderID.MatchString(string(id)) || owner.validate() != nil {
		return nil, ErrNotFound
	}
	var bad faults
	if c.Name != nil {
		checkName(&bad, *c.Name)
	}
	var parent FolderID
	if c.Parent != nil {
		parent = *c.Parent
		checkFolder(&bad, "parentId", parent)
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	var f Folder
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		if err := s.lockTree(ctx, tx, owner); err != nil {
			return err
		}
		done, err := first(ctx, tx, moveFolder, args{
			"id": id, "owner": owner, "name": c.Name, "set_parent": c.Parent != nil, "parent": nullable(parent), "max_depth": MaxFolderDepth,
		}, f.scanners()...)
		if err != nil || done {
			return err
		}
		if _, err := s.getFolder(ctx, tx, owner, id); err != nil {
			return err
		}
		if err := s.checkFolderOf(ctx, tx, owner, parent); err != nil {
			return err
		}
		return ErrFolderCycle
	})
	if violates(err, "folder_name_key") {
		err = ErrFolderExists
	}
	if err != nil {
		return nil, err
	}
	return &f, nil
}

// Files go to the root as they are deleted, so that they can be restored; those that were deleted before go there too.
var deleteFolder = compile("delete folder", `
with recursive tree as (
    select id from desk.folder where id = @id::text and owner = @owner::text
    union all
    select c.id from desk.folder c join tree t on c.parent_id = t.id where c.owner = @owner::text
), may as (
    select @recursive::boolean or not (
        exists (select from desk.folder where parent_id = @id::text and owner = @owner::text)
        or exists (select from desk.file where folder_id = @id::text and owner = @owner::text and deleted_at is null)) as yes
), files as (
    update desk.file f set folder_id = null, deleted_at = coalesce(f.deleted_at, clock_timestamp())
    from may where may.yes and f.owner = @owner::text and f.folder_id in (select id from tree)
), gone as (
    delete from desk.folder f using may where may.yes and f.owner = @owner::text and f.id in (select id from tree)
    returning f.id
)
select exists (select from gone), exists (select from tree)`)

// DeleteFolder removes a folder. Unless recursive, it must hold no folder, and no file that is not deleted. With
// recursive, all folders below it go, and all files in them are deleted as by Delete; restored, they are in the root.
// The error is ErrNotFound or ErrFolderNotEmpty.
func (s *Store) DeleteFolder(ctx context.Context, owner Owner, id FolderID, recursive bool) error {
	if !folderID.MatchString(string(id)) || owner.validate() != nil {
		return ErrNotFound
	}
	err := s.inTx(ctx, func(tx pgx.Tx) error {
		if err := s.lockTree(ctx, tx, owner); err != nil {
			return err
		}
		var gone, there bool
		_, err := first(ctx, tx, deleteFolder, args{"id": id, "owner": owner, "recursive": recursive}, &gone, &there)
		switch {
		case err != nil:
			return err
		case !there:
			return ErrNotFound
		case !gone:
			return ErrFolderNotEmpty
		}
		return nil
	})
	if violates(err, "file_folder_fk") || violates(err, "folder_parent_fk") {
		return ErrFolderNotEmpty // something came in meanwhile; the caller may ask again
	}
	return err
}
