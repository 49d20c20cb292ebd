package desk

import (
	"context"
	"slices"
	"strconv"
)

// MaxLook is how many files Look takes at once.
const MaxLook = 100

var lookAtFiles = compile("look at files", `
select `+fileColumns+` from desk.file f where f.owner = @owner::text and f.id = any(@ids::text[])`)

// Look returns those of the files that the owner has, without their content, deleted ones too, in no order. It is what
// asking again and again costs: a look at the primary key. What is no id is no file. The error is ErrInvalid for more
// than MaxLook.
func (s *Store) Look(ctx context.Context, owner Owner, ids ...FileID) ([]File, error) {
	var bad faults
	if len(ids) > MaxLook {
		bad.add("files", strconv.Itoa(len(ids)), "at most 100")
	}
	if err := bad.err(); err != nil {
		return nil, err
	}
	ids = slices.DeleteFunc(slices.Clone(ids), func(id FileID) bool { return !fileID.MatchString(string(id)) })
	if len(ids) == 0 || owner.validate() != nil {
		return nil, nil
	}
	rows, err := s.pool.Query(ctx, lookAtFiles.sql, args{"owner": owner, "ids": ids})
	if err != nil {
		return nil, wrap(lookAtFiles, err)
	}
	defer rows.Close()
	var out []File
	for rows.Next() {
		var f File
		if err := rows.Scan(f.scanners()...); err != nil {
			return nil, wrap(lookAtFiles, err)
		}
		out = append(out, f)
	}
	return out, wrap(lookAtFiles, rows.Err())
}
