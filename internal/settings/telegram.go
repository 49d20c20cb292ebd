package settings

import (
	"errors"
	"net/url"
	"os"
	"time"
)

// Telegram configures the channel "telegram". It is on when a token is given.
type Telegram struct {
	Token       string   `name:"token" env:"WEIR_TELEGRAM_TOKEN" placeholder:"TOKEN" help:"The bot's token. Empty: this process delivers nothing to Telegram. Never logged."`
	TokenFile   string   `name:"token-file" env:"WEIR_TELEGRAM_TOKEN_FILE" placeholder:"PATH" help:"A file that holds the token instead."`
	ServerURL   string   `name:"server-url" env:"WEIR_TELEGRAM_SERVER_URL" default:"https://api.telegram.org" help:"The Bot API server."`
	SendTimeout Duration `name:"send-timeout" env:"WEIR_TELEGRAM_SEND_TIMEOUT" default:"30s" help:"Bound on one message, waiting for its turn included. It must be below the step time."`
	DialTimeout Duration `name:"dial-timeout" env:"WEIR_TELEGRAM_DIAL_TIMEOUT" default:"10s" help:"Bound on connecting, and again on the TLS handshake. A proxy is taken from HTTPS_PROXY."`
}

// On says whether a token is given.
func (t *Telegram) On() bool { return t.Token != "" || t.TokenFile != "" }

func (t *Telegram) validate(stepTime time.Duration) error {
	if !t.On() {
		return nil
	}
	faults := []error{
		t.SendTimeout.check("WEIR_TELEGRAM_SEND_TIMEOUT", 100*time.Millisecond, min(4*time.Minute-time.Second, max(stepTime, 100*time.Millisecond))),
		t.DialTimeout.check("WEIR_TELEGRAM_DIAL_TIMEOUT", 10*time.Millisecond, 4*time.Minute),
	}
	if u, err := url.Parse(t.ServerURL); err != nil || u.Scheme != "https" && u.Scheme != "http" || u.Host == "" || u.User != nil || u.RawQuery != "" || u.Fragment != "" {
		faults = append(faults, Fault("WEIR_TELEGRAM_SERVER_URL", "(not shown)", "an http or https URL without user and query, such as https://api.telegram.org"))
	}
	if t.Token != "" && t.TokenFile != "" {
		faults = append(faults, Fault("WEIR_TELEGRAM_TOKEN_FILE", t.TokenFile, "empty where WEIR_TELEGRAM_TOKEN is set"))
	}
	if t.TokenFile != "" {
		if _, err := os.Stat(t.TokenFile); err != nil {
			faults = append(faults, Fault("WEIR_TELEGRAM_TOKEN_FILE", t.TokenFile, "a file that can be read"))
		}
	}
	return errors.Join(faults...)
}

// Secret returns the token, from the file where one is named.
func (t *Telegram) Secret() (string, error) {
	return secret(t.Token, t.TokenFile, "WEIR_TELEGRAM_TOKEN_FILE")
}
