// Command generate bundles the pages and writes docs/document-session.md's diagram: go generate ./web.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/weirqueue/weir/web"
)

func main() {
	code, err := web.Pages()
	if err != nil {
		log.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(web.Dir(), web.PagesBundle), code, 0o644); err != nil {
		log.Fatal(err)
	}
}
