package settings

import (
	"log/slog"
	"reflect"
	"regexp"
	"slices"
	"strings"
)

// notSettings are variables under our prefix that are no command's: of the tests, of compose.yaml, and those that Kubernetes
// sets for a Service whose name begins with "weir".
var notSettings = regexp.MustCompile(`^WEIR_(TEST|DRILL|BENCH)_|^WEIR_(DB_PASSWORD|SEED|LONG|SCREENSHOTS)$|` +
	`_SERVICE_(HOST|PORT)(_[A-Z0-9_]+)?$|_PORT(_\d+_(TCP|UDP|SCTP)(_[A-Z]+)?)?$`)

// Unknown names the variables of environ that begin with WEIR_ and are settings of none of the commands, in order: most
// likely they are misspelt, and what they were to set has its default. Values are not looked at.
func Unknown(environ []string, commands ...any) []string {
	known := map[string]bool{}
	for _, c := range commands {
		collect(reflect.TypeOf(c), known)
	}
	var unknown []string
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		if strings.HasPrefix(name, "WEIR_") && !known[name] && !notSettings.MatchString(name) {
			unknown = append(unknown, name)
		}
	}
	slices.Sort(unknown)
	return slices.Compact(unknown)
}

// WarnOfUnknown logs what Unknown names.
func WarnOfUnknown(log *slog.Logger, environ []string, commands ...any) {
	if names := Unknown(environ, commands...); len(names) > 0 {
		log.Warn("there are variables that no command of Weir knows: they may be misspelt, see docs/configuration.md", "variables", names)
	}
}

// collect adds the variables of a command's struct and of those inside it.
func collect(t reflect.Type, known map[string]bool) {
	if t.Kind() != reflect.Struct {
		return
	}
	for i := range t.NumField() {
		f := t.Field(i)
		for name := range strings.SplitSeq(f.Tag.Get("env"), ",") {
			known[name] = true
		}
		collect(f.Type, known)
	}
}
