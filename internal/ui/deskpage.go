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
}

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
	body := &filesBody{Files: page.Items, Total: page.Pagination.Total, Deleted: filter.Deleted, Filtered: filter.Type != ""}
	link := func(change func(*desk.Filter)) string {
		f := filter
		f.Page = 1
		change(&f)
		return linkToFiles(f)
	}
	body.Types = []choice{{"All types", link(func(f *desk.Filter) { f.Type, f.Deleted = "", false }), filter.Type == "" && !filter.Deleted}}
	for _, typ := range []desk.Type{desk.TypeSpreadsheet, desk.TypeMarkdown, desk.TypeRecord} {
		body.Types = append(body.Types, choice{typeName(typ), link(func(f *desk.Filter) { f.Type, f.Deleted = typ, false }), filter.Type == typ && !filter.Deleted})
	}
	body.Types = append(body.Types, choice{"Deleted", link(func(f *desk.Filter) { f.Type, f.Deleted = "", true }), filter.Deleted})
	if filter.Page > 1 {
		body.Newer = link(func(f *desk.Filter) { f.Page = int(min(int64(filter.Page)-1, max(1, page.Pagination.TotalPages))) })
	}
	if int64(filter.Page) < page.Pagination.TotalPages {
		body.Older = link(func(f *desk.Filter) { f.Page = filter.Page + 1 })
	}
	return s.pages.render(w, r, http.StatusOK, "files", frame{Title: "Files", Live: true, Now: now, Body: body})
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
