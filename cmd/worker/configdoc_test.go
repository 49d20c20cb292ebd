package main

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/weirqueue/weir/internal/drill"
	"github.com/weirqueue/weir/internal/ui"
)

var update = flag.Bool("update", false, "write docs/configuration.md")

const configurationDoc = "../../docs/configuration.md"

// The page is made from the structs that the commands parse, so it cannot lag behind them.
func TestConfigurationDoc_IsUpToDate(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("# Configuration\n\nGenerated from the commands' own structs by `make generate`.\n\n" +
		"Every setting is an environment variable and a flag. Durations are written like `30s`, `5m` or `24h`. A command that is\n" +
		"configured badly names every fault at once, with the variable, the value and the bound, and exits with status 2.\n")
	worker := kong.Must(&CLI{}, kong.Name("worker"), drill.Vars())
	for _, node := range worker.Model.Leaves(true) {
		writeCommand(&b, "worker "+strings.TrimSpace(strings.TrimPrefix(node.FullPath(), "worker")), node.Help, node.Flags)
	}
	pages := kong.Must(&ui.Settings{}, kong.Name("ui"))
	writeCommand(&b, "ui", "River UI and Weir's pages.", pages.Model.Flags)
	if *update {
		require.NoError(t, os.WriteFile(configurationDoc, b.Bytes(), 0o644))
	}
	have, err := os.ReadFile(configurationDoc)
	require.NoError(t, err)
	require.Equal(t, b.String(), string(have), "run `make generate`")
}

func writeCommand(b *bytes.Buffer, name, help string, flags []*kong.Flag) {
	fmt.Fprintf(b, "\n## `%s`\n\n%s\n\n| variable | flag | default | what |\n| --- | --- | --- | --- |\n", name, help)
	for _, f := range flags {
		if f.Name == "help" {
			continue
		}
		env := "—"
		if len(f.Envs) > 0 {
			env = "`" + strings.Join(f.Envs, "`, `") + "`"
		}
		def := "—"
		if f.Default != "" {
			def = "`" + f.Default + "`"
		}
		fmt.Fprintf(b, "| %s | `--%s` | %s | %s |\n", env, f.Name, def, strings.ReplaceAll(f.Help, "|", "\\|"))
	}
}
