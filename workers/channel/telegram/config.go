package telegram

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"regexp"
	"strings"
	"time"

	"github.com/weirqueue/weir/workers/channel"
)

// DefaultServerURL is Telegram's own Bot API.
const DefaultServerURL = "https://api.telegram.org"

// StepTime is how long a delivery may take in its step, by default. Timeout is below it, so that a slow server cannot
// outlive the lease of the worker that waits for it.
const StepTime = 4 * time.Minute

// Config says which bot sends. Zero values mean the defaults.
type Config struct {
	// Token is the bot's, such as "123456:ABC-DEF". Required. It is never shown.
	Token string
	// ServerURL is a Bot API server. Defaults to DefaultServerURL.
	ServerURL string

	// Timeout is for a whole Send, waiting included. Defaults to 30 s; below StepTime.
	Timeout time.Duration
	// DialTimeout is for the TCP connection, and again for the TLS handshake. Defaults to 10 s, or Timeout if that is less.
	DialTimeout time.Duration
	// Proxy chooses a proxy for a request. Defaults to http.ProxyFromEnvironment.
	Proxy func(*http.Request) (*url.URL, error)

	// MaxPerSecond is how many messages this Channel sends in a second, to all chats. Defaults to 30; from 1 to 1000. Each
	// process of a fleet has its own.
	MaxPerSecond int
	// ChatInterval is the time from one message to the next for the same chat. Defaults to 1 s; from 1 ms to 1 min.
	ChatInterval time.Duration
}

func (c Config) withDefaults() Config {
	c.ServerURL = strings.TrimRight(cmp.Or(c.ServerURL, DefaultServerURL), "/")
	c.Timeout = cmp.Or(c.Timeout, 30*time.Second)
	c.DialTimeout = cmp.Or(c.DialTimeout, min(10*time.Second, c.Timeout))
	if c.Proxy == nil {
		c.Proxy = http.ProxyFromEnvironment
	}
	c.MaxPerSecond = cmp.Or(c.MaxPerSecond, 30)
	c.ChatInterval = cmp.Or(c.ChatInterval, time.Second)
	return c
}

// A token becomes part of a path.
var tokenForm = regexp.MustCompile(`^[0-9]{1,20}:[A-Za-z0-9_-]{1,200}$`)

// validate reports every fault of a configuration that has its defaults. It never shows the token.
func (c Config) validate() error {
	var faults []error
	fault := func(field string, value any, bound string) {
		faults = append(faults, fmt.Errorf("%s %v: must be %s", field, value, bound))
	}
	if !tokenForm.MatchString(c.Token) {
		fault("Token", "(not shown)", "a bot's token, such as 123456:ABC-DEF")
	}
	u, err := url.Parse(c.ServerURL)
	if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		fault("ServerURL", "(not shown)", "an http or https URL without user and query, such as "+DefaultServerURL)
	}
	if c.Timeout <= 0 || c.Timeout >= StepTime {
		fault("Timeout", c.Timeout, "above 0 and below "+StepTime.String())
	}
	if c.DialTimeout <= 0 || c.DialTimeout > max(c.Timeout, 1) {
		fault("DialTimeout", c.DialTimeout, "above 0 and at most Timeout")
	}
	if c.MaxPerSecond < 1 || c.MaxPerSecond > 1000 {
		fault("MaxPerSecond", c.MaxPerSecond, "from 1 to 1000")
	}
	if c.ChatInterval < time.Millisecond || c.ChatInterval > time.Minute {
		fault("ChatInterval", c.ChatInterval, "from 1 ms to 1 min")
	}
	if len(faults) == 0 {
		return nil
	}
	return channel.Misconfigured("telegram_config", fmt.Errorf("telegram: bad configuration: %w", errors.Join(faults...)))
}
