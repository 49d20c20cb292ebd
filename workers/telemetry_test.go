package workers_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// eventType is an event as observer.go declares it.
type eventType struct {
	name   string // what EventName returns
	fields []string
}

// declaredEvents reads every type that has an EventName method.
func declaredEvents(t *testing.T, file string) map[string]*eventType {
	t.Helper()
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	require.NoError(t, err)
	events := map[string]*eventType{}
	for _, d := range parsed.Decls {
		f, ok := d.(*ast.FuncDecl)
		if !ok || f.Recv == nil || f.Name.Name != "EventName" {
			continue
		}
		receiver, ok := f.Recv.List[0].Type.(*ast.Ident)
		require.True(t, ok, "a receiver of EventName is a plain type")
		answer, ok := f.Body.List[0].(*ast.ReturnStmt)
		require.True(t, ok, "EventName of %s returns its name", receiver.Name)
		name, err := strconv.Unquote(answer.Results[0].(*ast.BasicLit).Value)
		require.NoError(t, err)
		events[receiver.Name] = &eventType{name: name}
	}
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.TypeSpec)
		if !ok || events[spec.Name.Name] == nil {
			return true
		}
		for _, f := range spec.Type.(*ast.StructType).Fields.List {
			for _, name := range f.Names {
				events[spec.Name.Name].fields = append(events[spec.Name.Name].fields, name.Name)
			}
		}
		return true
	})
	return events
}

var quoted = regexp.MustCompile("`([^`]+)`")

func TestTelemetry_EveryEventAndFieldIsDocumentedAndNoOther(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../docs/telemetry.md")
	require.NoError(t, err)
	events := declaredEvents(t, "observer.go")
	require.NotEmpty(t, events)
	documented := map[string][]string{} // by type: the event's name, then the quoted words of its row
	_, section, found := strings.Cut(string(text), "## Events")
	require.True(t, found)
	section, _, _ = strings.Cut(section, "\nThe reasons of")
	for line := range strings.Lines(section) {
		var words []string
		for _, m := range quoted.FindAllStringSubmatch(line, -1) {
			words = append(words, m[1])
		}
		if strings.HasPrefix(line, "| `") && len(words) >= 2 {
			documented[words[1]] = append([]string{words[0]}, words[2:]...)
		}
	}
	for name, event := range events {
		row := documented[name]
		if row == nil {
			t.Errorf("docs/telemetry.md has no row for the event %s", name)
			continue
		}
		if row[0] != event.name {
			t.Errorf("docs/telemetry.md calls %s %q, and its EventName is %q", name, row[0], event.name)
		}
		for _, field := range event.fields {
			if !slices.Contains(row[1:], field) {
				t.Errorf("docs/telemetry.md does not say what %s.%s is", name, field)
			}
		}
		for _, word := range row[1:] {
			if word[0] >= 'A' && word[0] <= 'Z' && !slices.Contains(event.fields, word) {
				t.Errorf("docs/telemetry.md describes %s.%s, which there is not", name, word)
			}
		}
	}
	for name := range documented {
		if events[name] == nil {
			t.Errorf("docs/telemetry.md describes the event %s, which there is not", name)
		}
	}
}
