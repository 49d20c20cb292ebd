package desk

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/jackc/pgx/v5"
)

// MaxVersion is the highest version: beyond it JavaScript's numbers have gaps.
const MaxVersion = 1<<53 - 1

// Save is one save of a file's content, and of any metadata with it.
type Save struct {
	File FileID
	// ID is minted once for each save, and kept when it is sent again.
	ID SaveID
	// Writer says who saves.
	Writer WriterID
	// ExpectedVersion is the version that the content was made from. It is required.
	ExpectedVersion int64
	// ExpectedRev is the save that made that version. Where it is given it must be the stored one too, so that a backup
	// that was restored to the same number is told apart. Empty: not compared.
	ExpectedRev SaveID
	// SchemaVersion is the form of the content that the writer knows. It is required: any but SchemaVersion is
	// ErrSchemaOutdated.
	SchemaVersion int
	Content       Content
	// Metadata is written with the content; the zero value leaves it alone.
	Metadata Metadata
}

// Saved says what a save did.
type Saved struct {
	// File is the file without its content, at the version that this save made.
	File File   `json:"file"`
	ID   SaveID `json:"saveId"`
	// Replayed says that the save had been committed before.
	Replayed bool `json:"replayed"`
	// CurrentVersion is the stored version. It is above the save's own when somebody saved after it.
	CurrentVersion int64 `json:"currentVersion"`
}

func (v *Save) validate() error {
	var f faults
	if !token.MatchString(string(v.ID)) {
		f.add("saveId", string(v.ID), tokenBound)
	}
	if !token.MatchString(string(v.Writer)) {
		f.add("writerId", string(v.Writer), tokenBound)
	}
	if v.ExpectedRev != "" && !token.MatchString(string(v.ExpectedRev)) {
		f.add("expectedRev", string(v.ExpectedRev), tokenBound)
	}
	if v.ExpectedVersion < 1 || v.ExpectedVersion > MaxVersion {
		f.add("expectedVersion", strconv.FormatInt(v.ExpectedVersion, 10), fmt.Sprintf("an integer from 1 to %d", MaxVersion))
	}
	if v.SchemaVersion < 1 {
		f.add("schemaVersion", strconv.Itoa(v.SchemaVersion), "a positive integer; this server writes "+strconv.Itoa(SchemaVersion))
	}
	if v.Content.IsZero() && v.SchemaVersion == SchemaVersion {
		f.add("content", "", "there")
	}
	v.Metadata.check(&f)
	return f.err()
}

// hash is that of the canonical request, and never of what a database made of it.
func (v *Save) hash() []byte {
	b, err := json.Marshal(struct {
		Version  int64
		Rev      SaveID
		Writer   WriterID
		Schema   int
		Content  string
		Metadata Metadata
	}{v.ExpectedVersion, v.ExpectedRev, v.Writer, v.SchemaVersion, hex.EncodeToString(v.Content.digest[:]), v.Metadata})
	if err != nil {
		panic(err) // nothing in it can fail to be written
	}
	sum := sha256.Sum256(b)
	return sum[:]
}

// The whole save is one statement: compare, swap, and the ledger's row. Two of them that meet are put in order by the
// lock of the file's row, for which the second one waits; it then sees the version that the first one made, and matches
// nothing.
var saveContent = compile("save content", `
with f as (
    update desk.file f set
        version = f.version + 1, rev = @save::text, writer_id = @writer::text, schema_version = @schema::integer, content = @content::text::json,
        name = coalesce(@name::text, f.name), ai_context = coalesce(@ai_context::boolean, f.ai_context),
        folder_id = case when @set_folder::boolean then @folder::text else f.folder_id end,
        updated_at = clock_timestamp()
    where f.id = @id::text and f.owner = @owner::text and f.type = @type::text and f.deleted_at is null
        and f.version = @expected::bigint
        and (@rev::text is null or f.rev = @rev::text)
        and not exists (select from desk.save s where s.file_id = @id::text and s.save_id = @save::text)
        and `+noFolderOrOwn+`
    returning f.*
), noted as (
    insert into desk.save (file_id, save_id, version, writer_id, hash) select f.id, f.rev, f.version, f.writer_id, @hash::bytea from f
)
select `+fileColumns+` from f`)

var explainSave = compile("explain save", `
select `+fileColumns+`, s.version, s.hash, `+noFolderOrOwn+`
from desk.file f left join desk.save s on s.file_id = f.id and s.save_id = @save::text
where f.id = @id::text and f.owner = @owner::text`)

// Save stores content if the stored version is the expected one, in one statement that holds no lock beyond itself.
//
// A save that was committed before is answered again, with Replayed. The error is ErrInvalid, ErrNotFound, ErrDeleted,
// a *ConflictError, ErrSaveIDReused, ErrSchemaOutdated or ErrFolderNotFound; none of them has written anything. After
// any other error, such as a connection that was lost, the save may have been committed: send it again, as it was.
func (s *Store) Save(ctx context.Context, owner Owner, v Save) (*Saved, error) {
	return s.save(ctx, s.pool, owner, v)
}

// SaveTx is Save in the caller's transaction. The file is locked until the transaction ends: keep that short. A folder
// that is deleted in the very moment of the save is ErrFolderNotFound too, and then the transaction can only roll back.
// The expected version is a part of the request: who may repeat it keeps that beside the content, and does not read it
// anew.
func (s *Store) SaveTx(ctx context.Context, tx pgx.Tx, owner Owner, v Save) (*Saved, error) {
	if err := given(tx); err != nil {
		return nil, err
	}
	return s.save(ctx, tx, owner, v)
}

func (s *Store) save(ctx context.Context, on db, owner Owner, v Save) (*Saved, error) {
	if !fileID.MatchString(string(v.File)) || owner.validate() != nil {
		return nil, ErrNotFound
	}
	if err := v.validate(); err != nil {
		return nil, err
	}
	hash := v.hash()
	folder, setFolder := v.Metadata.folder()
	a := args{
		"id": v.File, "owner": owner, "type": v.Content.typ, "save": v.ID, "writer": v.Writer, "expected": v.ExpectedVersion,
		"rev": nullable(v.ExpectedRev), "schema": v.SchemaVersion, "content": v.Content.json, "hash": hash,
		"name": v.Metadata.Name, "ai_context": v.Metadata.AIContext, "set_folder": setFolder, "folder": folder,
	}
	swap := func() (*Saved, error) {
		var f File
		done, err := first(ctx, on, saveContent, a, f.scanners()...)
		switch {
		case done:
			return &Saved{File: f, ID: v.ID, CurrentVersion: f.Version}, nil
		case violates(err, "file_folder_fk"):
			return nil, ErrFolderNotFound
		}
		return nil, err
	}
	// A schema that this server does not write may still have been saved by one that did: the ledger is asked in any case.
	if v.SchemaVersion == SchemaVersion {
		if saved, err := swap(); saved != nil || err != nil {
			return saved, err
		}
	}
	if saved, err := s.explain(ctx, on, owner, v, hash); saved != nil || err != nil {
		return saved, err
	}
	// What was in its way, such as a deletion, went away between the two statements.
	saved, err := swap()
	if saved == nil && err == nil {
		err = fmt.Errorf("desk: save %s of file %s was overtaken twice: send it again", v.ID, v.File)
	}
	return saved, err
}

// explain says why a save wrote nothing. Neither an answer nor an error means that nothing speaks against it any more.
func (s *Store) explain(ctx context.Context, on db, owner Owner, v Save, hash []byte) (*Saved, error) {
	var (
		f       File
		version *int64
		known   []byte
		folder  bool
	)
	id, _ := v.Metadata.folder()
	found, err := first(ctx, on, explainSave, args{"id": v.File, "owner": owner, "save": v.ID, "folder": id},
		append(f.scanners(), &version, &known, &folder)...)
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, ErrNotFound
	case f.DeletedAt != nil:
		return nil, ErrDeleted
	case version != nil && string(known) != string(hash):
		return nil, ErrSaveIDReused
	case version != nil:
		saved := &Saved{File: f, ID: v.ID, Replayed: true, CurrentVersion: f.Version}
		saved.File.Version, saved.File.Rev, saved.File.WriterID = *version, v.ID, &v.Writer
		return saved, nil
	case v.SchemaVersion != SchemaVersion:
		return nil, ErrSchemaOutdated
	case f.Type != v.Content.typ:
		return nil, invalid("content", string(v.Content.typ), "the content of a "+string(f.Type))
	case f.Version != v.ExpectedVersion, v.ExpectedRev != "" && f.Rev != v.ExpectedRev:
		return nil, &ConflictError{File: v.File, Current: f.current()}
	case !folder:
		return nil, ErrFolderNotFound
	}
	return nil, nil
}
