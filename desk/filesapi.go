package desk

import (
	"errors"
	"fmt"
	"net/http"
	"strconv"
	"strings"
)

// limits tell a client what to check before it sends.
type limits struct {
	MaxContentBytes      int `json:"maxContentBytes"`
	MaxContentCharacters int `json:"maxContentCharacters"`
}

// wholeFile is a file with its content, as answers carry it.
type wholeFile struct {
	*File
	Limits limits `json:"limits"`
}

func etag(version int64, rev SaveID) string { return fmt.Sprintf(`"%d-%s"`, version, rev) }

func (c *call) answerFile(status int, f *File) error {
	c.w.Header().Set("ETag", etag(f.Version, f.Rev))
	if status == http.StatusCreated {
		c.w.Header().Set("Location", Prefix+"files/"+string(f.ID))
	}
	return c.answer(status, wholeFile{f, limits{MaxContentBytes, MaxContentCharacters}})
}

func (c *call) fileID() FileID { return FileID(c.ids[0]) }

func (h *Handler) listFiles(c *call) error {
	var bad faults
	query := c.query(&bad, "type", "deleted", "page", "pageSize")
	filter := Filter{Type: Type(query["type"]), Deleted: flagOf(&bad, query, "deleted"), Paging: pagingOf(&bad, query)}
	if given, ok := query["type"]; ok && !filter.Type.known() {
		bad.add("type", given, typeBound)
	}
	if err := bad.err(); err != nil {
		return err
	}
	page, err := h.store.List(c.context(), c.owner, filter)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, page)
}

func (h *Handler) createFile(c *call) error {
	body, err := c.body(true)
	if err != nil {
		return err
	}
	n, err := decodeNewFile(body)
	if err != nil {
		return err
	}
	f, err := h.store.Create(c.context(), c.owner, n)
	if err != nil {
		return err
	}
	return c.answerFile(http.StatusCreated, f)
}

func decodeNewFile(body *node) (n NewFile, err error) {
	f := fields{body: body}
	f.only("body", body, "type", "name", "folderId", "aiContext", "content", "schemaVersion")
	typ := Type(f.text("type", true))
	if len(f.list) == 0 && !typ.known() {
		f.add("type", string(typ), typeBound)
	}
	n.Name = f.text("name", false)
	if folder := f.optionalFolder("folderId"); folder != nil {
		n.Folder = *folder
	}
	if flag := f.optionalBool("aiContext"); flag != nil {
		n.AIContext = *flag
	}
	schema := f.integer("schemaVersion", MaxVersion)
	if err := f.err(); err != nil {
		return n, err
	}
	content := f.get("content")
	if content == nil {
		n.Content, err = EmptyContent(typ)
		return n, err
	}
	if schema != 0 && schema != SchemaVersion {
		return n, ErrSchemaOutdated
	}
	if n.Content, err = contentOf(content); err == nil && n.Content.typ != typ {
		err = invalid("content", string(n.Content.typ), "the content of a "+string(typ))
	}
	return n, err
}

func (h *Handler) getFile(c *call) error {
	f, err := h.store.Get(c.context(), c.owner, c.fileID())
	if err != nil {
		return err
	}
	return c.answerFile(http.StatusOK, f)
}

func (h *Handler) putFile(c *call) error {
	body, err := c.body(true)
	if err != nil {
		return err
	}
	v, content, err := decodeSave(body, c.r.Header.Values("If-Match"))
	if err != nil {
		return err
	}
	v.File = c.fileID()
	if !content {
		f, err := h.store.Describe(c.context(), c.owner, v.File, v.Metadata)
		if err != nil {
			return err
		}
		return c.answerSaved(&Saved{File: *f, ID: v.ID, CurrentVersion: f.Version})
	}
	saved, err := h.store.Save(c.context(), c.owner, v)
	if err != nil {
		return err
	}
	return c.answerSaved(saved)
}

func (c *call) answerSaved(s *Saved) error {
	if s.CurrentVersion == s.File.Version {
		c.w.Header().Set("ETag", etag(s.File.Version, s.File.Rev))
	}
	var id *SaveID
	if s.ID != "" {
		id = &s.ID
	}
	return c.answer(http.StatusOK, struct {
		File           File    `json:"file"`
		ID             *SaveID `json:"saveId"` // null where metadata came without one
		Replayed       bool    `json:"replayed"`
		CurrentVersion int64   `json:"currentVersion"`
	}{s.File, id, s.Replayed, s.CurrentVersion})
}

// decodeSave reads a PUT, and says whether there is content in it: metadata alone needs no version.
func decodeSave(body *node, ifMatch []string) (v Save, hasContent bool, err error) {
	f := fields{body: body}
	f.only("body", body, "expectedVersion", "expectedRev", "saveId", "writerId", "schemaVersion", "content", "name", "folderId", "aiContext")
	content := f.get("content")
	hasContent = content != nil
	v.ExpectedVersion = f.integer("expectedVersion", MaxVersion)
	v.ExpectedRev = SaveID(f.token("expectedRev", false))
	v.ID = SaveID(f.token("saveId", hasContent))
	v.Writer = WriterID(f.token("writerId", hasContent))
	v.SchemaVersion = int(f.integer("schemaVersion", MaxVersion))
	v.Metadata = Metadata{Name: f.optionalText("name"), Folder: f.optionalFolder("folderId"), AIContext: f.optionalBool("aiContext")}
	f.matchVersion(&v, ifMatch)
	if !hasContent {
		if v.Metadata.IsZero() {
			f.add("body", "", "something to save: content, name, folderId or aiContext")
		}
		return v, false, f.err()
	}
	if f.get("schemaVersion") == nil {
		f.add("schemaVersion", "", "an integer")
	}
	if err := f.err(); err != nil {
		return v, true, err
	}
	if v.ExpectedVersion == 0 {
		return v, true, errVersionRequired
	}
	if v.SchemaVersion != SchemaVersion {
		// What another schema allows is not known here. The ledger is still to be asked whether it was saved before.
		v.Content = Content{digest: content.digest()}
		return v, true, nil
	}
	v.Content, err = contentOf(content)
	return v, true, err
}

// matchVersion takes the version from If-Match, which may say the same as the body, and nothing else.
func (f *fields) matchVersion(v *Save, ifMatch []string) {
	if len(ifMatch) == 0 {
		return
	}
	const bound = `one ETag of this file, such as "5-0123abcd"`
	given := strings.Join(ifMatch, ", ")
	version, rev, err := parseETag(given)
	if err != nil {
		f.add("If-Match", given, bound)
		return
	}
	switch {
	case f.get("expectedVersion") != nil && v.ExpectedVersion != version:
		f.add("If-Match", given, "of the same version as expectedVersion")
	case f.get("expectedRev") != nil && v.ExpectedRev != rev:
		f.add("If-Match", given, "of the same save as expectedRev")
	}
	v.ExpectedVersion, v.ExpectedRev = version, rev
}

var errETag = errors.New("not one of our ETags")

// parseETag reads what etag wrote. A proxy that compresses answers may have made it a weak one; it says the same.
func parseETag(s string) (int64, SaveID, error) {
	s = strings.TrimPrefix(s, "W/")
	inner, ok := strings.CutPrefix(s, `"`)
	inner, closed := strings.CutSuffix(inner, `"`)
	digits, rev, dash := strings.Cut(inner, "-")
	version, err := strconv.ParseInt(digits, 10, 64)
	if !ok || !closed || !dash || err != nil || version < 1 || version > MaxVersion || strconv.FormatInt(version, 10) != digits || !token.MatchString(rev) {
		return 0, "", errETag
	}
	return version, SaveID(rev), nil
}

func (h *Handler) duplicateFile(c *call) error {
	if err := c.nothing(); err != nil {
		return err
	}
	f, err := h.store.Duplicate(c.context(), c.owner, c.fileID())
	if err != nil {
		return err
	}
	return c.answerFile(http.StatusCreated, f)
}

// nothing wants no body, or an empty object.
func (c *call) nothing() error {
	body, err := c.body(false)
	if err != nil {
		return err
	}
	var bad faults
	if len(body.members) > 0 {
		bad.add("body", string(body.raw), "empty")
	}
	return bad.err()
}

func (h *Handler) deleteFile(c *call) error {
	if err := h.store.Delete(c.context(), c.owner, c.fileID()); err != nil {
		return err
	}
	return c.answerNothing()
}

func (c *call) answerNothing() error {
	c.w.Header().Set("Cache-Control", "no-store")
	c.w.WriteHeader(http.StatusNoContent)
	return nil
}

func (h *Handler) restoreFile(c *call) error {
	if err := c.nothing(); err != nil {
		return err
	}
	f, err := h.store.Restore(c.context(), c.owner, c.fileID())
	if err != nil {
		return err
	}
	return c.answerFile(http.StatusOK, f)
}

func (h *Handler) findSave(c *call) error {
	version, current, err := h.store.FindSave(c.context(), c.owner, c.fileID(), SaveID(c.ids[1]))
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, map[string]int64{"version": version, "currentVersion": current})
}
