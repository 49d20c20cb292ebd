// Package web bundles what runs in the browser: the session of a document (session/) and the pages that use it (pages/).
//
// The bundle of the pages is committed where cmd/ui embeds it, so that neither building nor running needs esbuild; a test
// fails when it is not what the sources make.
package web

import (
	"embed"
	"fmt"
	"path/filepath"
	"runtime"

	"github.com/evanw/esbuild/pkg/api"
)

//go:generate go run ./generate

// PagesBundle is where the bundle of the pages is committed, from this directory.
const PagesBundle = "../internal/ui/assets/desk.js"

// sources are embedded so that what is bundled is what the compiler saw: an overlay of the mutation test included.
//
//go:embed session pages
var sources embed.FS

// Dir is where the sources are.
func Dir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}

// Pages bundles the pages for browsers.
func Pages() ([]byte, error) {
	return bundle(api.BuildOptions{
		EntryPoints: []string{"pages/main.ts"}, Format: api.FormatIIFE,
		MinifySyntax: true, MinifyWhitespace: true, MinifyIdentifiers: true,
		Banner: map[string]string{"js": "// Made by go generate ./web from web/pages and web/session. Do not edit."},
	})
}

// Session bundles the session alone, as an application would import it.
func Session() ([]byte, error) {
	return bundle(api.BuildOptions{
		EntryPoints: []string{"session/index.ts"}, Format: api.FormatESModule,
		MinifySyntax: true, MinifyWhitespace: true, MinifyIdentifiers: true,
	})
}

func bundle(o api.BuildOptions) ([]byte, error) {
	o.AbsWorkingDir, o.Bundle, o.Charset, o.LogLevel = Dir(), true, api.CharsetUTF8, api.LogLevelSilent
	if o.Target == api.DefaultTarget {
		o.Target = api.ES2020
	}
	o.Plugins = []api.Plugin{{Name: "embedded", Setup: func(b api.PluginBuild) {
		b.OnLoad(api.OnLoadOptions{Filter: `\.ts$`}, func(a api.OnLoadArgs) (api.OnLoadResult, error) {
			path, err := filepath.Rel(Dir(), a.Path)
			if err != nil {
				return api.OnLoadResult{}, err
			}
			code, err := sources.ReadFile(filepath.ToSlash(path))
			text := string(code)
			return api.OnLoadResult{Contents: &text, Loader: api.LoaderTS}, err
		})
	}}}
	built := api.Build(o)
	if len(built.Errors) > 0 {
		return nil, fmt.Errorf("web: bundle %s: %s", o.EntryPoints, api.FormatMessages(built.Errors, api.FormatMessagesOptions{})[0])
	}
	return built.OutputFiles[0].Contents, nil
}
