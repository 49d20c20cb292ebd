// Command generate writes what is made from the sources in web: the bundle of the pages, and the drawing of the session's
// states. It is run by go generate ./web.
package main

import (
	"log"
	"os"
	"path/filepath"

	"github.com/weirqueue/weir/web"
)

func main() {
	for path, make := range map[string]func() ([]byte, error){web.PagesBundle: web.Pages, web.StatesDoc: web.States} {
		made, err := make()
		if err != nil {
			log.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(web.Dir(), path), made, 0o644); err != nil {
			log.Fatal(err)
		}
	}
}
