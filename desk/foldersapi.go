package desk

import (
	"net/http"
)

func (c *call) folderID() FolderID { return FolderID(c.ids[0]) }

func (h *Handler) listFolders(c *call) error {
	var bad faults
	paging := pagingOf(&bad, c.query(&bad, "page", "pageSize"))
	if err := bad.err(); err != nil {
		return err
	}
	page, err := h.store.ListFolders(c.context(), c.owner, paging)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, page)
}

func (h *Handler) createFolder(c *call) error {
	body, err := c.body(true)
	if err != nil {
		return err
	}
	f := fields{body: body}
	f.only("body", body, "name", "parentId")
	name := f.text("name", true)
	var parent FolderID
	if id := f.optionalFolder("parentId"); id != nil {
		parent = *id
	}
	if err := f.err(); err != nil {
		return err
	}
	folder, err := h.store.CreateFolder(c.context(), c.owner, parent, name)
	if err != nil {
		return err
	}
	c.w.Header().Set("Location", Prefix+"folders/"+string(folder.ID))
	return c.answer(http.StatusCreated, folder)
}

func (h *Handler) getFolder(c *call) error {
	folder, err := h.store.GetFolder(c.context(), c.owner, c.folderID())
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, folder)
}

func (h *Handler) putFolder(c *call) error {
	body, err := c.body(true)
	if err != nil {
		return err
	}
	f := fields{body: body}
	f.only("body", body, "name", "parentId")
	change := FolderChange{Name: f.optionalText("name"), Parent: f.optionalFolder("parentId")}
	if change.IsZero() {
		f.add("body", "", "something to change: name or parentId")
	}
	if err := f.err(); err != nil {
		return err
	}
	folder, err := h.store.ChangeFolder(c.context(), c.owner, c.folderID(), change)
	if err != nil {
		return err
	}
	return c.answer(http.StatusOK, folder)
}

func (h *Handler) deleteFolder(c *call) error {
	var bad faults
	recursive := flagOf(&bad, c.query(&bad, "recursive"), "recursive")
	if err := bad.err(); err != nil {
		return err
	}
	if err := h.store.DeleteFolder(c.context(), c.owner, c.folderID(), recursive); err != nil {
		return err
	}
	return c.answerNothing()
}
