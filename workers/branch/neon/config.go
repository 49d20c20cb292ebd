// Package neon resets branches of Neon, over its public API.
//
// A branch is reset by one call, restore, which has no idempotency key. So each reset keeps the branch's previous state
// under a name of its own, "weir-" and the run's id: that is the proof by which Find knows that a call whose answer was
// lost was applied. It also satisfies what Neon asks for where a branch has children, which move to the backup, and where
// a branch is restored from itself. Backups count against the project's branches; delete them when they are not wanted.
package neon

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"
)

// DefaultBaseURL is Neon's own API.
const DefaultBaseURL = "https://console.neon.tech/api/v2"

// ErrInvalidConfig is what every fault of a Config matches.
var ErrInvalidConfig = errors.New("neon: invalid configuration")

// Config says how to reach Neon. Zero values mean the defaults.
type Config struct {
	// APIKey is a key of the organisation or the project. Required. It is never shown.
	APIKey string
	// BaseURL is the API. Defaults to DefaultBaseURL.
	BaseURL string
	// Timeout is for one request and its answer. Defaults to 15 s; 100 ms to 10 min. An issue takes up to four
	// requests: keep it below a quarter of the step time.
	Timeout time.Duration
	// Proxy chooses a proxy for a request. Defaults to http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)
}

func (c Config) withDefaults() Config {
	c.BaseURL = strings.TrimRight(cmp.Or(c.BaseURL, DefaultBaseURL), "/")
	c.Timeout = cmp.Or(c.Timeout, 15*time.Second)
	if c.Proxy == nil {
		c.Proxy = http.ProxyFromEnvironment
	}
	return c
}

// validate reports every fault of a configuration that has its defaults. It never shows the key.
func (c Config) validate() error {
	var faults []error
	fault := func(field string, value any, bound string) {
		faults = append(faults, fmt.Errorf("%w: Config.%s = %v: must be %s", ErrInvalidConfig, field, value, bound))
	}
	switch {
	case c.APIKey == "":
		fault("APIKey", `""`, "a Neon API key")
	case len(c.APIKey) > 500 || strings.ContainsFunc(c.APIKey, func(r rune) bool { return r <= ' ' || r > '~' }):
		fault("APIKey", "(not shown)", "a Neon API key: printable ASCII without spaces, at most 500 bytes")
	}
	u, err := url.Parse(c.BaseURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		fault("BaseURL", "(not shown)", "an http or https URL without user and query, such as "+DefaultBaseURL)
	}
	if c.Timeout < 100*time.Millisecond || c.Timeout > 10*time.Minute {
		fault("Timeout", c.Timeout, "from 100ms to 10m")
	}
	return errors.Join(faults...)
}
