package desk

import (
	"context"
	"errors"
	"fmt"
	"strconv"
)

// Bounds of a page.
const (
	DefaultPageSize = 50
	MaxPageSize     = 200
	// MaxPage keeps the place of a page within a bigint.
	MaxPage = 1_000_000
)

// Filter picks files for List. The zero value picks the first page of all that are not deleted.
type Filter struct {
	// Type picks one type. Empty is all.
	Type Type
	// Deleted picks the deleted files instead.
	Deleted bool
	Paging
}

// Paging picks a page. The zero value is the first one, of 50.
type Paging struct {
	Page     int // from 1; zero is 1
	PageSize int // 1 to 200; zero is 50
}

// Pagination says which part of a list a page is.
type Pagination struct {
	Page       int   `json:"page"`
	PageSize   int   `json:"pageSize"`
	Total      int64 `json:"total"`
	TotalPages int64 `json:"totalPages"`
}

// Listing is one page of a list.
type Listing[T any] struct {
	Items      []T        `json:"items"`
	Pagination Pagination `json:"pagination"`
}

func (p Paging) withDefaults() Paging {
	if p.Page == 0 {
		p.Page = 1
	}
	if p.PageSize == 0 {
		p.PageSize = DefaultPageSize
	}
	return p
}

func (p Paging) check(f *faults) {
	if p.Page < 1 || p.Page > MaxPage {
		f.add("page", strconv.Itoa(p.Page), fmt.Sprintf("from 1 to %d", MaxPage))
	}
	if p.PageSize < 1 || p.PageSize > MaxPageSize {
		f.add("pageSize", strconv.Itoa(p.PageSize), fmt.Sprintf("from 1 to %d", MaxPageSize))
	}
}

func (p Paging) args(a args) args {
	a["limit"], a["offset"] = p.PageSize, int64(p.Page-1)*int64(p.PageSize)
	return a
}

// One statement reads a page and the total, of one snapshot. Its first row is there even when the page is empty.
const pageOf = `page as (select * from matching order by %s limit @limit::bigint offset @offset::bigint)
select (select count(*) from matching), f.id is not null, %s from (select) one left join page f on true order by %s`

var listFiles = compile("list files", `
with matching as (
    select `+fileColumns+` from desk.file f
    where f.owner = @owner::text and (@type::text is null or f.type = @type::text) and (f.deleted_at is not null) = @deleted::boolean
), `+fmt.Sprintf(pageOf, "updated_at desc, id desc", `coalesce(f.id, ''), coalesce(f.owner, ''), coalesce(f.type, ''), coalesce(f.name, ''), f.folder_id,
    coalesce(f.ai_context, false), coalesce(f.version, 0), coalesce(f.rev, ''), f.writer_id, coalesce(f.schema_version, 0),
    coalesce(f.created_at, 'epoch'), coalesce(f.updated_at, 'epoch'), f.deleted_at`, "f.updated_at desc, f.id desc"))

// List returns a page of the owner's files without their content, the last changed first. The error is ErrInvalid.
func (s *Store) List(ctx context.Context, owner Owner, filter Filter) (*Listing[File], error) {
	paging := filter.withDefaults()
	var bad faults
	paging.check(&bad)
	if filter.Type != "" && !filter.Type.known() {
		bad.add("type", string(filter.Type), typeBound)
	}
	if err := errors.Join(owner.validate(), bad.err()); err != nil {
		return nil, err
	}
	a := paging.args(args{"owner": owner, "type": nullable(filter.Type), "deleted": filter.Deleted})
	return collect(ctx, s.pool, listFiles, a, paging, (*File).scanners)
}

func collect[T any](ctx context.Context, on db, s statement, a args, p Paging, scanners func(*T) []any) (*Listing[T], error) {
	out := &Listing[T]{Items: []T{}, Pagination: Pagination{Page: p.Page, PageSize: p.PageSize}}
	rows, err := on.Query(ctx, s.sql, a)
	if err != nil {
		return nil, wrap(s, err)
	}
	defer rows.Close()
	for rows.Next() {
		var (
			item  T
			there bool
		)
		if err := rows.Scan(append([]any{&out.Pagination.Total, &there}, scanners(&item)...)...); err != nil {
			return nil, wrap(s, err)
		}
		if there {
			out.Items = append(out.Items, item)
		}
	}
	size := int64(p.PageSize)
	out.Pagination.TotalPages = (out.Pagination.Total + size - 1) / size
	return out, wrap(s, rows.Err())
}
