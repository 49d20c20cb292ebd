// Package settings is the configuration of the commands: structs that kong fills from flags and the environment, with
// validation that reports all faults at once. docs/configuration.md is generated from them.
package settings

import (
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"
)

// Duration is a duration setting. Text that is none is a fault that Validate reports with all others, instead of the
// first thing that ends the parsing.
type Duration struct {
	text string
	d    time.Duration
	err  error
}

// UnmarshalText never fails; see check.
func (v *Duration) UnmarshalText(text []byte) error {
	v.text = string(text)
	v.d, v.err = time.ParseDuration(v.text)
	return nil
}

// Value is the duration.
func (v Duration) Value() time.Duration { return v.d }

func (v Duration) check(variable string, low, high time.Duration) error {
	bound := fmt.Sprintf("a duration from %s to %s, such as 30s or 5m", low, high)
	if v.err != nil || v.d < low || v.d > high {
		return Fault(variable, v.text, bound)
	}
	return nil
}

// Durations is a setting of durations by name, such as a=1h,b=2h; see Duration.
type Durations struct {
	text      string
	of        map[string]Duration
	malformed bool
}

// UnmarshalText never fails; see check.
func (v *Durations) UnmarshalText(text []byte) error {
	*v = Durations{text: string(text), of: map[string]Duration{}}
	if v.text == "" {
		return nil
	}
	for part := range strings.SplitSeq(v.text, ",") {
		name, value, _ := strings.Cut(part, "=")
		name, value = strings.TrimSpace(name), strings.TrimSpace(value)
		var d Duration
		_ = d.UnmarshalText([]byte(value))
		if _, again := v.of[name]; name == "" || again || d.err != nil {
			v.malformed = true
			return nil
		}
		v.of[name] = d
	}
	return nil
}

// Value is the durations by name.
func (v Durations) Value() map[string]time.Duration {
	of := map[string]time.Duration{}
	for name, d := range v.of {
		of[name] = d.d
	}
	return of
}

func (v Durations) check(variable string, low, high time.Duration) error {
	if v.malformed {
		return Fault(variable, v.text, "names with durations, such as a=24h,b=2h, each name once")
	}
	var faults []error
	for _, name := range slices.Sorted(maps.Keys(v.of)) {
		faults = append(faults, v.of[name].check(variable+" ("+name+")", low, high))
	}
	return errors.Join(faults...)
}

// Int is a whole-number setting; see Duration.
type Int struct {
	text string
	n    int
	err  error
}

// UnmarshalText never fails; see check.
func (v *Int) UnmarshalText(text []byte) error {
	v.text = string(text)
	v.n, v.err = strconv.Atoi(v.text)
	return nil
}

// Value is the number.
func (v Int) Value() int { return v.n }

func (v Int) check(variable string, low, high int) error {
	if v.err != nil || v.n < low || v.n > high {
		return Fault(variable, v.text, fmt.Sprintf("a whole number from %d to %d", low, high))
	}
	return nil
}

// Fault describes one fault of a configuration.
func Fault(variable, value, bound string) error {
	return fmt.Errorf("%s = %q: must be %s", variable, value, bound)
}

// ErrInvalid is what a configuration with faults matches.
var ErrInvalid = errors.New("invalid configuration")

// Exit ends the process as kong wants it, but with status 2 for a wrong command line, as for a wrong configuration.
func Exit(code int) {
	const usage = 80 // kong's
	if code == usage {
		code = 2
	}
	os.Exit(code)
}

func joined(faults ...error) error {
	err := errors.Join(faults...)
	if err == nil {
		return nil
	}
	return fmt.Errorf("%w:\n%w", ErrInvalid, err)
}

// ValidatePort reports a port that is none. 0 asks for a free one.
func ValidatePort(variable string, v Int) error { return joined(v.check(variable, 0, 65535)) }

// ValidateDrill checks the numbers of a drill.
func ValidateDrill(duration Duration, workers Int, lease Duration) error {
	return joined(duration.check("--duration", 5*time.Second, 24*time.Hour), workers.check("--workers", 2, 20),
		lease.check("--lease", time.Second, time.Minute))
}
