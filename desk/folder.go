package desk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// MaxFolderDepth is how deeply folders may be nested.
const MaxFolderDepth = 20

// Folder holds files and folders of one owner.
type Folder struct {
	ID        FolderID  `json:"id"`
	ParentID  *FolderID `json:"parentId"` // null: the root
	Name      string    `json:"name"`
	CreatedAt time.Time `json:"createdAt"`
	UpdatedAt time.Time `json:"updatedAt"`
}

func (f *Folder) scanners() []any {
	return []any{&f.ID, &f.ParentID, &f.Name, &f.CreatedAt, &f.UpdatedAt}
}

const folderColumns = "f.id, f.parent_id, f.name, f.created_at, f.updated_at"

// The shape of one owner's tree changes one at a time: two moves that are each fine can make a ring together. The lock
// is the transaction's, so it works through a transaction pooler.
var lockTree = compile("lock tree", `select pg_advisory_xact_lock(hashtextextended('weir.desk.tree:' || @owner::text, 0))`)

// depthOf counts the folders from a folder, included, to the root.
const depthOf = `with recursive up as (
    select id, parent_id, 1 as depth from desk.folder where id = @parent::text and owner = @owner::text
    union all
    select p.id, p.parent_id, up.depth + 1 from desk.folder p join up on p.id = up.parent_id where p.owner = @owner::text
)`

var createFolder = compile("create folder", depthOf+`
insert into desk.folder as f (id, owner, parent_id, name)
select @id::text, @owner::text, @parent::text, @name::text
where @parent::text is null or (select max(depth) from up) < @max_depth::integer
on conflict (id) do nothing
returning `+folderColumns)

// CreateFolder makes a folder in another one, or in the root where parent is empty. The error is ErrInvalid,
// ErrFolderExists, ErrFolderNotFound, or ErrFolderCycle where it would be too deep.
func (s *Store) CreateFolder(ctx context.Context, owner Owner, parent FolderID, name string) (*Folder, error) {
	var bad faults
	checkName(&bad, name)
	checkFolder(&bad, "parentId", parent)
	if err := errors.Join(owner.validate(), bad.err()); err != nil {
		return nil, err
	}
	for range mintTries {
		var f Folder
		made := false
		err := s.inTx(ctx, func(tx pgx.Tx) (err error) {
			if err := s.lockTree(ctx, tx, owner); err != nil {
				return err
			}
			made, err = first(ctx, tx, createFolder, args{
				"id": "fld_" + random(6), "owner": owner, "parent": nullable(parent), "name": name, "max_depth": MaxFolderDepth,
			}, f.scanners()...)
			if err != nil || made || parent == "" {
				return err
			}
			if err := s.checkFolderOf(ctx, tx, owner, parent); err != nil {
				return err
			}
			return ErrFolderCycle
		})
		switch {
		case violates(err, "folder_name_key"):
			return nil, ErrFolderExists
		case err != nil:
			return nil, err
		case made:
			return &f, nil
		}
	}
	return nil, fmt.Errorf("desk: %s: no id was free in %d tries", createFolder.name, mintTries)
}

var readFolder = compile("read folder", `
select `+folderColumns+` from desk.folder f where f.id = @id::text and f.owner = @owner::text`)

// GetFolder reads a folder. The error is ErrNotFound.
func (s *Store) GetFolder(ctx context.Context, owner Owner, id FolderID) (*Folder, error) {
	return s.getFolder(ctx, s.pool, owner, id)
}

func (s *Store) getFolder(ctx context.Context, on db, owner Owner, id FolderID) (*Folder, error) {
	if !folderID.MatchString(string(id)) || owner.validate() != nil {
		return nil, ErrNotFound
	}
	var f Folder
	found, err := first(ctx, on, readFolder, args{"id": id, "owner": owner}, f.scanners()...)
	if err == nil && !found {
		err = ErrNotFound
	}
	if err != nil {
		return nil, err
	}
	return &f, nil
}

var listFolders = compile("list folders", `
with matching as (
    select `+folderColumns+` from desk.folder f where f.owner = @owner::text
), `+fmt.Sprintf(pageOf, "name, id", `coalesce(f.id, ''), f.parent_id, coalesce(f.name, ''), coalesce(f.created_at, 'epoch'),
    coalesce(f.updated_at, 'epoch')`, "f.name, f.id"))

// ListFolders returns a page of all folders of the owner, by name. The error is ErrInvalid.
func (s *Store) ListFolders(ctx context.Context, owner Owner, paging Paging) (*Listing[Folder], error) {
	paging = paging.withDefaults()
	var bad faults
	paging.check(&bad)
	if err := errors.Join(owner.validate(), bad.err()); err != nil {
		return nil, err
	}
	return collect(ctx, s.pool, listFolders, paging.args(args{"owner": owner}), paging, (*Folder).scanners)
}

func (s *Store) lockTree(ctx context.Context, tx pgx.Tx, owner Owner) error {
	if _, err := tx.Exec(ctx, lockTree.sql, args{"owner": owner}); err != nil {
		return wrap(lockTree, err)
	}
	return nil
}
