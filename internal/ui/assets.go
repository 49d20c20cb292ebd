package ui

import (
	"bytes"
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"mime"
	"net/http"
	"path"
	"time"
)

//go:embed assets
var assetFiles embed.FS

type asset struct {
	body []byte
	tag  string
}

// assets serves the stylesheet and the script. Browsers keep them and ask whether they changed.
type assets map[string]asset

func newAssets() assets {
	list := assets{}
	entries, err := assetFiles.ReadDir("assets")
	if err != nil {
		panic(err) // embedded: cannot fail
	}
	for _, entry := range entries {
		body, err := assetFiles.ReadFile("assets/" + entry.Name())
		if err != nil {
			panic(err) // embedded: cannot fail
		}
		sum := sha256.Sum256(body)
		list[entry.Name()] = asset{body: body, tag: `"` + hex.EncodeToString(sum[:8]) + `"`}
	}
	return list
}

func (a assets) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	file, ok := a[r.PathValue("name")]
	if !ok {
		answerPlainly(w, http.StatusNotFound, "There is no such file.\n")
		return
	}
	w.Header().Set("Content-Type", mime.TypeByExtension(path.Ext(r.PathValue("name"))))
	w.Header().Set("Cache-Control", "no-cache")
	w.Header().Set("ETag", file.tag)
	http.ServeContent(w, r, "", time.Time{}, bytes.NewReader(file.body))
}
