package desk

import (
	"crypto/rand"
	"encoding/hex"
	"regexp"
	"strings"
	"unicode/utf8"
)

// Owner is the user whom a file belongs to: 1 to 255 characters of UTF-8, as the application's authentication names
// users.
type Owner string

func (o Owner) validate() error {
	n := utf8.RuneCountInString(string(o))
	if n < 1 || n > 255 || !utf8.ValidString(string(o)) || strings.ContainsRune(string(o), 0) {
		return invalid("owner", string(o), "1 to 255 characters of UTF-8, without NUL")
	}
	return nil
}

// FileID names a file: fil_ and 12 hexadecimal digits.
type FileID string

// FolderID names a folder: fld_ and 12 hexadecimal digits. As the folder of something, empty means the root.
type FolderID string

// SaveID names a save within its file. The writer mints it and keeps it when it sends the save again: 1 to 64 letters,
// digits, - and _.
type SaveID string

// WriterID names who saved, such as a tab of a browser: 1 to 64 letters, digits, - and _.
type WriterID string

var (
	fileID   = regexp.MustCompile(`^fil_[0-9a-f]{12}$`)
	folderID = regexp.MustCompile(`^fld_[0-9a-f]{12}$`)
	token    = regexp.MustCompile(`^[A-Za-z0-9_-]{1,64}$`)
)

const (
	tokenBound  = "1 to 64 letters, digits, - and _"
	folderBound = "fld_ and 12 hexadecimal digits, or null for the root"
)

// NewSaveID mints the id of a save.
func NewSaveID() SaveID { return SaveID(random(16)) }

// random is n random bytes as hexadecimal digits.
func random(n int) string {
	b := make([]byte, n)
	_, _ = rand.Read(b) // never fails
	return hex.EncodeToString(b)
}

// mintTries is how often an id is minted anew when it is taken. Twelve digits are short: among a million files, one in
// 280 million ids is.
const mintTries = 4
