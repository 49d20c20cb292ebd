package main

const (
	deskPkg = "./desk"
	uiPkg   = "./internal/ui"

	deskSaveGo     = "desk/save.go"
	deskFileGo     = "desk/file.go"
	deskMetaGo     = "desk/metadata.go"
	deskLifeGo     = "desk/lifecycle.go"
	deskLedgerGo   = "desk/ledger.go"
	deskFolderGo   = "desk/folder.go"
	deskTreeGo     = "desk/foldertree.go"
	deskListGo     = "desk/list.go"
	deskJSONGo     = "desk/json.go"
	deskContentGo  = "desk/content.go"
	deskHandlerGo  = "desk/handler.go"
	deskRequestGo  = "desk/request.go"
	deskResponseGo = "desk/response.go"
	deskFilesGo    = "desk/filesapi.go"
	deskLimiterGo  = "desk/limiter.go"
	deskStoreGo    = "desk/store.go"
	deskYAML       = "desk/openapi.yaml"
	deskSQL        = "migrations/sql/0002_desk.sql"
	uiDeskGo       = "internal/ui/desk.go"

	// true whatever the parameter is
	anyOwner = "@owner::text is not null"
)

func init() { mutants = append(mutants, deskMutants...) }

var deskMutants = []mutant{
	// Compare and swap.
	{"desk: a save without the version", one(deskSaveGo, "and f.version = @expected::bigint\n", "and @expected::bigint is not null\n"), deskPkg, "Save_Fifty|Save_Replayed"},
	{"desk: a save without the rev", one(deskSaveGo, "and (@rev::text is null or f.rev = @rev::text)", "and (@rev::text is null or true)"), deskPkg, "Save_SameVersion"},
	{"desk: another rev is explained away", one(deskSaveGo, `f.Version != v.ExpectedVersion, v.ExpectedRev != "" && f.Rev != v.ExpectedRev:`, `f.Version != v.ExpectedVersion:`), deskPkg, "Save_SameVersion"},
	{"desk: a save to a deleted file", one(deskSaveGo, "and f.type = @type::text and f.deleted_at is null\n", "and f.type = @type::text\n"), deskPkg, "Save_ToADeleted"},
	{"desk: content of another type", []edit{{deskSaveGo, "and f.type = @type::text and", "and @type::text is not null and"}}, deskPkg, "Save_ContentOfAnotherType"},
	{"desk: the version stays", one(deskSaveGo, "version = f.version + 1, rev", "rev"), deskPkg, "Save_Fifty"},
	{"desk: a version is guessed", one(deskFilesGo, "	if v.ExpectedVersion == 0 {\n		return v, true, errVersionRequired", "	if v.ExpectedVersion == 0 {\n		v.ExpectedVersion = 1\n	}\n	if false {\n		return v, true, errVersionRequired"), deskPkg, "Save_NeedsTheVersion"},
	{"desk: 1.0 is a version", one(deskRequestGo, "v, err := strconv.ParseInt(string(n.raw), 10, 64)", "x, err := strconv.ParseFloat(string(n.raw), 64)\n	v := int64(x)"), deskPkg, "Save_NeedsTheVersion"},
	{"desk: If-Match overrides the body", one(deskFilesGo, `f.add("If-Match", given, "of the same version as expectedVersion")`, ""), deskPkg, "Save_TakesTheVersion"},
	{"desk: metadata raises the version", one(deskMetaGo, "update desk.file f set\n    name", "update desk.file f set version = f.version + 1,\n    name"), deskPkg, "Save_MetadataAlone"},
	{"desk: a save of another schema", one(deskSaveGo, "	case v.SchemaVersion != SchemaVersion:\n		return nil, ErrSchemaOutdated\n", ""), deskPkg, "Save_OfAnotherSchema"},
	{"desk: another schema's saves are forgotten", one(deskSaveGo, "	hash := v.hash()\n", "	hash := v.hash()\n	if v.SchemaVersion != SchemaVersion {\n		return nil, ErrSchemaOutdated\n	}\n"), deskPkg, "Save_OfAnotherSchema"},

	// The ledger.
	{"desk: no transaction", one(deskStoreGo, "if tx == nil {", "if false {"), deskPkg, "Store_WithoutATransaction"},
	{"desk: tables that are not there are not named", one(deskStoreGo, "%w: %w\", s.name, ErrNotMigrated, err)", "%w\", s.name, errors.Join(err))"), deskPkg, "Store_WithoutTimeOrTables"},
	{"desk: a repeat on another version is the same", one(deskSaveGo, "}{v.ExpectedVersion, v.ExpectedRev,", "}{0, v.ExpectedRev,"), deskPkg, "SaveTx_ARepeat"},
	{"desk: the ledger is not asked", one(deskSaveGo, "and not exists (select from desk.save s where s.file_id = @id::text and s.save_id = @save::text)\n", "\n"), deskPkg, "SaveTx_Refusals"},
	{"desk: the ledger is not written", one(deskSaveGo, "f.writer_id, @hash::bytea from f\n", "f.writer_id, @hash::bytea from f where false\n"), deskPkg, "Save_WhoseAnswer|Save_Fifty"},
	{"desk: a replay is not recognised", one(deskSaveGo, "case version != nil:", "case version != nil && f.Version == *version && false:"), deskPkg, "Save_WhoseAnswer|Save_Fifty"},
	{"desk: any request under a save id", one(deskSaveGo, "case version != nil && string(known) != string(hash):", "case version != nil && string(known) != string(hash) && false:"), deskPkg, "Save_IDWith"},
	{"desk: the base is not in the hash", one(deskSaveGo, "}{v.ExpectedVersion, v.ExpectedRev,", "}{0, v.ExpectedRev,"), deskPkg, "Save_IDWith"},
	{"desk: the content is not in the hash", one(deskSaveGo, "hex.EncodeToString(v.Content.digest[:])", "hex.EncodeToString(nil)"), deskPkg, "Save_IDWith"},
	{"desk: the metadata is not in the hash", one(deskSaveGo, "v.Content.digest[:]), v.Metadata}", "v.Content.digest[:]), Metadata{}}"), deskPkg, "Save_IDWith"},
	{"desk: the order of keys is in the hash", one("desk/canonical.go", "slices.SortFunc(out.members", "slices.SortStableFunc(out.members[:0]"), deskPkg, "Save_IDWith|Content_Equal"},
	{"desk: a replay hides the save after it", one(deskSaveGo, "saved.File.Version, saved.File.Rev, saved.File.WriterID = *version, v.ID, &v.Writer", ""), deskPkg, "Save_ReplayedAfter"},
	{"desk: one save twice in the ledger", one(deskSQL, "constraint save_pkey primary key (file_id, save_id)", "constraint save_pkey primary key (file_id, save_id, version)"), deskPkg, "Schema_Refuses"},
	{"desk: one version twice in the ledger", one(deskSQL, "unique (file_id, version)", "unique (file_id, version, save_id)"), deskPkg, "Schema_Refuses"},
	{"desk: a version may go anywhere", one(deskSQL, "when (new.version <> old.version + 1)", "when (new.version < old.version - 100)"), deskPkg, "Schema_Refuses"},
	{"desk: young saves are forgotten", one(deskLedgerGo, "and s.created_at < clock_timestamp() - @age::interval\n", "and @age::interval is not null\n"), deskPkg, "Ledger_Keeps"},
	{"desk: the last saves are forgotten", one(deskLedgerGo, "and s.version <= f.version - @keep::bigint\n", "and @keep::bigint is not null\n"), deskPkg, "Ledger_Keeps"},

	// The owner.
	{"desk: anybody reads", one(deskFileGo, "from desk.file f where f.id = @id::text and f.owner = @owner::text", "from desk.file f where f.id = @id::text and "+anyOwner), deskPkg, "Owner_Every"},
	{"desk: anybody saves", one(deskSaveGo, "where f.id = @id::text and f.owner = @owner::text and f.type", "where f.id = @id::text and "+anyOwner+" and f.type"), deskPkg, "Owner_Every"},
	{"desk: anybody is told the version", one(deskSaveGo, "s.save_id = @save::text\nwhere f.id = @id::text and f.owner = @owner::text", "s.save_id = @save::text\nwhere f.id = @id::text and "+anyOwner), deskPkg, "Owner_Every"},
	{"desk: anybody renames", one(deskMetaGo, "f.owner = @owner::text", anyOwner), deskPkg, "Owner_Every"},
	{"desk: anybody duplicates", []edit{{deskLifeGo, "where id = @source::text and owner = @owner::text", "where id = @source::text and " + anyOwner}}, deskPkg, "Owner_Every"},
	{"desk: anybody deletes", one(deskLifeGo, "f.owner = @owner::text returning f.id", anyOwner+" returning f.id"), deskPkg, "Owner_Every"},
	{"desk: anybody restores", one(deskLifeGo, "set deleted_at = null where f.id = @id::text and f.owner = @owner::text", "set deleted_at = null where f.id = @id::text and "+anyOwner), deskPkg, "Owner_Every"},
	{"desk: anybody asks the ledger", one(deskLedgerGo, "f.owner = @owner::text", anyOwner), deskPkg, "Owner_Every"},
	{"desk: anybody lists", one(deskListGo, "where f.owner = @owner::text", "where "+anyOwner), deskPkg, "Owner_Every"},
	{"desk: anybody reads folders", one(deskFolderGo, "f.id = @id::text and f.owner = @owner::text", "f.id = @id::text and "+anyOwner), deskPkg, "Owner_Every"},
	{"desk: anybody lists folders", one(deskFolderGo, "from desk.folder f where f.owner = @owner::text", "from desk.folder f where "+anyOwner), deskPkg, "Owner_Every"},
	{"desk: anybody moves folders", one(deskTreeGo, "where f.id = @id::text and f.owner = @owner::text", "where f.id = @id::text and "+anyOwner), deskPkg, "Owner_Every"},
	{"desk: a statement without its owner", one(deskFileGo, "from desk.file f where f.id = @id::text and f.owner = @owner::text", "from desk.file f where f.id = @id::text and "+anyOwner), deskPkg, "Statements_"},
	{"desk: a file in a foreign folder", one(deskSQL, "constraint file_folder_fk foreign key (owner, folder_id) references desk.folder (owner, id)", "constraint file_folder_fk check (true)"), deskPkg, "Owner_TheDatabase"},
	{"desk: saved as somebody else", one(deskHandlerGo, "Owner(name) != owner {", "name == `` {"), deskPkg, "Owner_ARequest"},

	// Folders.
	{"desk: two folders of a name", one(deskSQL, "coalesce(parent_id, ''), name", "parent_id, name"), deskPkg, "Folder_Names"},
	{"desk: a folder in itself", one(deskTreeGo, "and not exists (select from up where up.id = @id::text)\n", "\n"), deskPkg, "Folder_NeverEnds"},
	{"desk: moves that make a ring", one(deskFolderGo, "if _, err := tx.Exec(ctx, lockTree.sql, args{\"owner\": owner}); err != nil {", "if err := ctx.Err(); err != nil {"), deskPkg, "Folder_Racing"},
	{"desk: a full folder goes", one(deskTreeGo, "select @recursive::boolean or not (", "select true or @recursive::boolean or not ("), deskPkg, "Folder_Deleted"},

	// Input.
	{"desk: NUL", one(deskJSONGo, "case r == 0:", "case r == -2:"), deskPkg, "Input_ThatCannot"},
	{"desk: half a surrogate pair", one(deskJSONGo, "if pair == utf8.RuneError {", "if pair == -2 {"), deskPkg, "Input_ThatCannot"},
	{"desk: bytes that are no UTF-8", one(deskJSONGo, "if !utf8.Valid(in) {", "if false {"), deskPkg, "Input_ThatCannot"},
	{"desk: keys twice", one(deskJSONGo, "if seen[name] {", "if false {"), deskPkg, "Input_ThatCannot"},
	{"desk: any depth", one(deskJSONGo, "p.depth > MaxDepth {", "p.depth > 100*MaxDepth {"), deskPkg, "Input_ThatCannot"},
	{"desk: any number of values", one(deskJSONGo, "p.values > MaxValues {", "p.values > 100*MaxValues {"), deskPkg, "Input_ThatCannot"},
	{"desk: fields that are not known", one(deskFilesGo, `f.only("body", body, "expectedVersion",`, `f.only("body", &node{}, "expectedVersion",`), deskPkg, "Input_ThatCannot"},
	{"desk: any size", one(deskContentGo, "size > MaxContentCharacters {", "size > 100*MaxContentCharacters {"), deskPkg, "Input_TooLarge"},
	{"desk: any content type", one(deskRequestGo, `name != "application/json" || `, `name == "" || `), deskPkg, "Input_OfAnother"},
	{"desk: compressed bodies", one(deskRequestGo, ` || len(c.r.Header.Values("Content-Encoding")) > 0`, ""), deskPkg, "Input_OfAnother"},
	{"desk: a body that ends early", one(deskRequestGo, "	if err != nil {\n		return nil, fmt.Errorf(\"%w: %w\", errIncomplete, err)\n	}\n", ""), deskPkg, "Input_BodyThatEnds"},
	{"desk: the rest of a body is left", one(deskRequestGo, "if size <= drainBytes {", "if size <= 0 {"), deskPkg, "Input_TooLargeIsAnswered"},
	{"desk: refused before it is sent", one(deskRequestGo, "	drain(w, r, MaxBodyBytes)\n", "	_ = w\n"), deskPkg, "Input_RefusalsAre"},
	{"desk: an empty rev is none", one(deskFilesGo, `SaveID(f.token("expectedRev", false))`, `SaveID(f.text("expectedRev", false))`), deskPkg, "Input_ThatCannot"},
	{"desk: half a query", one(deskRequestGo, "	if err != nil {\n		f.add(\"query\"", "	if err != nil && false {\n		f.add(\"query\""), deskPkg, "List_Pages"},
	{"desk: a look at what is no id", one("desk/look.go", "return !fileID.MatchString(string(id)) })", "return false })"), deskPkg, "Store_OddOwners"},
	{"desk: a foreign file costs more", one(deskSaveGo, "	case !found:\n		return nil, ErrNotFound\n", "	case !found:\n		if err := s.stateOf(ctx, on, owner, v.File); err == nil {\n			return nil, ErrDeleted\n		}\n		var there bool\n		if _, err := first(ctx, on, statement{sql: `select true from desk.file where id = @id::text`}, args{\"id\": v.File}, &there); there && err == nil {\n			_ = s.stateOf(ctx, on, owner, v.File)\n		}\n		return nil, ErrNotFound\n"), deskPkg, "Speed_AForeign"},
	{"desk: digits are lost", one("desk/canonical.go", "return append(b, n.raw...)", "return append(b, strings.TrimRight(string(n.raw), \"0\")...)"), deskPkg, "Input_IsRead"},

	// Requests.
	{"desk: a status that is not described", one(deskResponseGo, "http.StatusGone, \"file_deleted\"", "http.StatusTeapot, \"file_deleted\""), deskPkg, "Contract"},
	{"desk: a status that is never sent", one(deskYAML, "        \"428\": {$ref: \"#/components/responses/VersionRequired\"}\n", "        \"402\": {$ref: \"#/components/responses/VersionRequired\"}\n        \"428\": {$ref: \"#/components/responses/VersionRequired\"}\n"), deskPkg, "Contract"},
	{"desk: no limit of requests", one(deskHandlerGo, "wait > 0 {", "wait > 1e18 {"), deskPkg, "Limiter_Answers"},
	{"desk: refused requests count", one(deskLimiterGo, "r.CancelAt(now)", "_ = now"), deskPkg, "Limiter_Lets"},
	{"desk: a limiter without bound", one(deskLimiterGo, "if l.recent.Len() >= l.maxUsers {", "if false {"), deskPkg, "Limiter_Lets"},
	{"desk: all streams for one user", one("desk/events.go", " || s.of[user] >= maxStreamsOfUser", ""), deskPkg, "Events_AreBounded"},
	{"desk: a closed stream counts", one("desk/events.go", "	s.all--\n	if s.of[user]--; s.of[user] == 0 {", "	s.all--\n	if s.of[user] == 0 {"), deskPkg, "Events_AreBounded"},
	{"desk: a browser that leaves", one(deskHandlerGo, "context.WithoutCancel(c.r.Context())", "c.r.Context()"), deskPkg, "Speed_AClient"},
	{"desk: a save touches an index", one(deskSQL, "create index file_folder_idx", "create index file_updated_idx on desk.file (updated_at);\ncreate index file_folder_idx"), deskPkg, "Speed_SavesAreHOT"},
	{"desk: viewers write", one("internal/ui/protect.go", "if user.Viewer {", "if user.Viewer && !isDesk(r) {"), uiPkg, "Desk_Viewers"},
	{"desk: forms' bound for documents", one(uiDeskGo, "if isDesk(r) {\n			next", "if false {\n			next"), uiPkg, "Desk_TakesDocuments"},
	{"desk: one desk for all", one(uiDeskGo, "return desk.Owner(name)", "return localOwner"), uiPkg, "Desk_EachUser"},
}
