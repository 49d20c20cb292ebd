package ui

import (
	"errors"
	"net/http"
	"net/url"
	"strconv"

	"github.com/weirqueue/weir/desk"
)

// filesPageSize is how many files the page shows at once.
const filesPageSize = 50

// filesBody is the page of a user's documents.
type filesBody struct {
	Types        []choice
	Files        []desk.File
	Total        int64
	Deleted      bool
	Filtered     bool
	Newer, Older string // links; empty where there is nothing
	User         desk.Owner
	MayWrite     bool
	New          []desk.Type
}

var types = []desk.Type{desk.TypeSpreadsheet, desk.TypeMarkdown, desk.TypeRecord}

func (s *Server) listFiles(w http.ResponseWriter, r *http.Request) error {
	query := r.URL.Query()
	filter := desk.Filter{Type: desk.Type(query.Get("type")), Deleted: query.Get("deleted") == "true", Paging: desk.Paging{Page: 1, PageSize: filesPageSize}}
	if text := query.Get("page"); text != "" {
		filter.Page, _ = strconv.Atoi(text) // what is no number is page 0, which the store refuses below
		if filter.Page == 0 {
			filter.Page = -1
		}
	}
	page, err := s.store.List(r.Context(), ownerOf(r), filter)
	if bad := (*desk.InvalidError)(nil); errors.As(err, &bad) {
		return &pageError{status: http.StatusBadRequest, sentence: bad.Field + " is “" + visible(bad.Value) + "”, and must be " + bad.Bound + "."}
	}
	if err != nil {
		return err
	}
	now, err := s.pages.now(r.Context())
	if err != nil {
		return err
	}
	body := &filesBody{
		Files: page.Items, Total: page.Pagination.Total, Deleted: filter.Deleted, Filtered: filter.Type != "",
		User: ownerOf(r), MayWrite: !UserOf(r.Context()).Viewer, New: types,
	}
	link := func(change func(*desk.Filter)) string {
		f := filter
		f.Page = 1
		change(&f)
		return linkToFiles(f)
	}
	body.Types = []choice{{"All types", link(func(f *desk.Filter) { f.Type, f.Deleted = "", false }), filter.Type == "" && !filter.Deleted}}
	for _, typ := range types {
		body.Types = append(body.Types, choice{typeName(typ), link(func(f *desk.Filter) { f.Type, f.Deleted = typ, false }), filter.Type == typ && !filter.Deleted})
	}
	body.Types = append(body.Types, choice{"Deleted", link(func(f *desk.Filter) { f.Type, f.Deleted = "", true }), filter.Deleted})
	if filter.Page > 1 {
		body.Newer = link(func(f *desk.Filter) { f.Page = int(min(int64(filter.Page)-1, max(1, page.Pagination.TotalPages))) })
	}
	if int64(filter.Page) < page.Pagination.TotalPages {
		body.Older = link(func(f *desk.Filter) { f.Page = filter.Page + 1 })
	}
	return s.pages.render(w, r, http.StatusOK, "files", frame{Title: "Files", Desk: true, Now: now, Body: body})
}

// fileBody is the page of one document. Its content comes by the API.
type fileBody struct {
	File     *desk.File
	User     desk.Owner
	MayWrite bool
}

func (s *Server) showFile(w http.ResponseWriter, r *http.Request) error {
	found, err := s.store.Look(r.Context(), ownerOf(r), desk.FileID(r.PathValue("id")))
	switch {
	case err != nil:
		return err
	case len(found) == 0:
		return &pageError{status: http.StatusNotFound, sentence: "You have no such file."}
	}
	file := &found[0]
	// Not no-store: a page that a browser may keep for the way back asks for its content again by itself.
	return s.pages.render(w, r, http.StatusOK, "file", frame{
		Title: visible(file.Name), Desk: true, Keep: true, Body: &fileBody{file, ownerOf(r), !UserOf(r.Context()).Viewer},
	})
}

func (s *Server) createFile(w http.ResponseWriter, r *http.Request) error {
	typ := desk.Type(r.PostFormValue("type"))
	content, err := desk.EmptyContent(typ)
	if err != nil {
		return &pageError{status: http.StatusBadRequest, sentence: "There is no such type of file."}
	}
	file, err := s.store.Create(r.Context(), ownerOf(r), desk.NewFile{Name: "Untitled", Content: content})
	if err != nil {
		return err
	}
	http.Redirect(w, r, "/files/"+string(file.ID), http.StatusSeeOther)
	return nil
}

func linkToFiles(f desk.Filter) string {
	query := url.Values{}
	if f.Type != "" {
		query.Set("type", string(f.Type))
	}
	if f.Deleted {
		query.Set("deleted", "true")
	}
	if f.Page > 1 {
		query.Set("page", strconv.Itoa(f.Page))
	}
	if len(query) == 0 {
		return "/files"
	}
	return "/files?" + query.Encode()
}

func typeName(t desk.Type) string {
	switch t {
	case desk.TypeSpreadsheet:
		return "Spreadsheet"
	case desk.TypeMarkdown:
		return "Markdown"
	case desk.TypeRecord:
		return "Record"
	}
	return string(t)
}
