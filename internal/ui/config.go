package ui

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
)

// Settings are the flags and environment variables of cmd/ui. They keep the names that River UI gives them. All are
// text here, so that Resolve reports every fault at once; docs/configuration.md is generated from the tags.
type Settings struct {
	DatabaseURL string `env:"DATABASE_URL" help:"PostgreSQL, as a URL or as keyword=value pairs. Required. A transaction pooler will do with default_query_exec_mode=exec." secret:""`

	Host   string `name:"host" env:"RIVER_HOST" default:"127.0.0.1" help:"Address to listen on. One that other machines can reach needs authentication. Empty is all addresses."`
	Port   string `env:"PORT" default:"8080" help:"Port to listen on, 0 to 65535; 0 picks a free one."`
	Schema string `env:"RIVER_SCHEMA" help:"Schema of River's tables. Empty: what the search_path says. Weir's own are always in weir."`

	PlanQueue   string `env:"WEIR_PLAN_QUEUE" default:"weir_plan" help:"The River queue of plans, as the workers have it."`
	BranchQueue string `env:"WEIR_BRANCH_QUEUE" default:"weir_branch_reset" help:"The River queue of branch resets, as the workers have it."`

	BasicAuthUser string `env:"RIVER_BASIC_AUTH_USER" help:"Name of a single user with full rights."`
	BasicAuthPass string `env:"RIVER_BASIC_AUTH_PASS" help:"That user's password." secret:""`

	HtpasswdFile string `env:"WEIR_HTPASSWD_FILE" help:"File of several users, one user:hash a line, bcrypt only (htpasswd -B). Read once, at the start."`
	Viewers      string `env:"WEIR_VIEWERS" help:"Users who may look and not change anything, separated by commas. For several users, or a proxy's."`

	ProxyUserHeader string `env:"WEIR_PROXY_USER_HEADER" help:"Header in which a proxy names the user, such as X-Forwarded-User. The proxy must remove what its client sent under that name."`
	ProxyCIDRs      string `name:"proxy-cidrs" env:"WEIR_PROXY_CIDRS" help:"Addresses that the proxy connects from, such as 10.0.0.0/8, separated by commas. The header is believed from nowhere else."`

	LogLevel  string `env:"RIVER_LOG_LEVEL" default:"info" help:"debug, info, warn or error."`
	LogFormat string `env:"RIVER_LOG_FORMAT" default:"json" help:"json or text."`
}

// ErrInvalid is what settings with faults match.
var ErrInvalid = errors.New("invalid configuration")

// Resolved is what settings mean.
type Resolved struct {
	Pool       *pgxpool.Config
	Host, Port string
	Schema     string
	// PlanQueue is for the plans that somebody approves, or undoes, on a page.
	PlanQueue string
	// BranchQueue is for the resets that somebody asks for on a page.
	BranchQueue string
	Auth        Auth // nil: none
	Viewers     []string
	LogLevel    slog.Level
	LogJSON     bool
}

// Resolve checks the settings and reads the files that they name. The error joins all faults; each names its variable,
// the value unless it is a secret, and what would have been accepted.
func (s *Settings) Resolve() (*Resolved, error) {
	r := &Resolved{Host: s.Host, Port: s.Port, Schema: s.Schema, PlanQueue: s.PlanQueue, BranchQueue: s.BranchQueue, Viewers: listOf(s.Viewers)}
	var faults []error
	check := func(ok bool, variable, value, bound string) {
		if !ok {
			faults = append(faults, fmt.Errorf("%s = %q: must be %s", variable, value, bound))
		}
	}
	s.resolveDatabase(r, &faults)
	port, err := strconv.Atoi(s.Port)
	check(err == nil && port >= 0 && port <= 65535, "PORT", s.Port, "a whole number from 0 to 65535")
	check(s.Schema == "" || (len(s.Schema) <= 46 && schemaName.MatchString(s.Schema)),
		"RIVER_SCHEMA", s.Schema, "letters, digits and _, at most 46 bytes")
	check(r.LogLevel.UnmarshalText([]byte(s.LogLevel)) == nil && !strings.ContainsAny(s.LogLevel, "+-"),
		"RIVER_LOG_LEVEL", s.LogLevel, "one of debug, info, warn, error")
	format := strings.ToLower(s.LogFormat)
	check(format == "json" || format == "text", "RIVER_LOG_FORMAT", s.LogFormat, "json or text")
	r.LogJSON = format == "json"
	before := len(faults)
	s.resolveAuth(r, &faults)
	if r.Auth == nil && len(faults) == before && !isLoopbackHost(s.Host) {
		faults = append(faults, fmt.Errorf("RIVER_HOST = %q: must be a loopback address such as 127.0.0.1, unless users sign in: "+
			"set RIVER_BASIC_AUTH_USER and RIVER_BASIC_AUTH_PASS, WEIR_HTPASSWD_FILE, or WEIR_PROXY_USER_HEADER and WEIR_PROXY_CIDRS", s.Host))
	}
	if len(faults) > 0 {
		return nil, fmt.Errorf("%w:\n%w", ErrInvalid, errors.Join(faults...))
	}
	return r, nil
}

var schemaName = regexp.MustCompile(`^[a-zA-Z_][a-zA-Z0-9_]*$`) // River's own rule

func (s *Settings) resolveDatabase(r *Resolved, faults *[]error) {
	const bound = "a PostgreSQL URL such as postgres://user@host/database, or keyword=value pairs"
	if s.DatabaseURL == "" {
		*faults = append(*faults, errors.New("DATABASE_URL is not set: must be "+bound))
		return
	}
	pool, err := pgxpool.ParseConfig(s.DatabaseURL)
	if err != nil {
		// The text of err repeats parts of the value, which holds a password.
		*faults = append(*faults, errors.New("DATABASE_URL (not shown, it may hold a password): must be "+bound))
		return
	}
	if pool.ConnConfig.ConnectTimeout == 0 {
		pool.ConnConfig.ConnectTimeout = 5 * time.Second
	}
	if pool.ConnConfig.RuntimeParams["application_name"] == "" {
		pool.ConnConfig.RuntimeParams["application_name"] = "weir-ui"
	}
	r.Pool = pool
}

// resolveAuth picks the one way in which users sign in.
func (s *Settings) resolveAuth(r *Resolved, faults *[]error) {
	fault := func(format string, args ...any) { *faults = append(*faults, fmt.Errorf(format, args...)) }
	basic := s.BasicAuthUser != "" || s.BasicAuthPass != ""
	file := s.HtpasswdFile != ""
	proxy := s.ProxyUserHeader != "" || s.ProxyCIDRs != ""
	if (basic && file) || (basic && proxy) || (file && proxy) {
		fault("RIVER_BASIC_AUTH_USER, WEIR_HTPASSWD_FILE, WEIR_PROXY_USER_HEADER: must be one of the three, so that it is plain who may sign in")
	}
	if basic {
		s.resolveBasic(r, fault)
	}
	if file {
		s.resolveHtpasswd(r, fault)
	}
	if proxy {
		s.resolveProxy(r, fault)
	}
	// A viewer that cannot sign in is a misspelt name, and the user who was meant could write.
	if len(r.Viewers) > 0 && !file && !proxy {
		fault("WEIR_VIEWERS = %q: must be empty without WEIR_HTPASSWD_FILE or WEIR_PROXY_USER_HEADER", s.Viewers)
	}
}

func (s *Settings) resolveBasic(r *Resolved, fault func(string, ...any)) {
	if s.BasicAuthUser == "" || strings.Contains(s.BasicAuthUser, ":") {
		fault("RIVER_BASIC_AUTH_USER = %q: must be a name without a colon, where RIVER_BASIC_AUTH_PASS is set", s.BasicAuthUser)
	}
	if s.BasicAuthPass == "" {
		fault("RIVER_BASIC_AUTH_PASS is not set: must be a password, where RIVER_BASIC_AUTH_USER is set")
	}
	r.Auth = BasicAuth{User: s.BasicAuthUser, Password: s.BasicAuthPass}
}

func (s *Settings) resolveHtpasswd(r *Resolved, fault func(string, ...any)) {
	f, err := os.Open(s.HtpasswdFile)
	if err != nil {
		fault("WEIR_HTPASSWD_FILE = %q: must be a file that can be read: %w", s.HtpasswdFile, errors.Unwrap(err))
		return
	}
	users, err := ParseHtpasswd(f)
	if err = errors.Join(err, f.Close()); err != nil {
		for line := range strings.SplitSeq(err.Error(), "\n") {
			fault("WEIR_HTPASSWD_FILE = %q: %s", s.HtpasswdFile, line)
		}
		return
	}
	for _, viewer := range r.Viewers {
		if !users.Has(viewer) {
			fault("WEIR_VIEWERS = %q: %q must be a user of WEIR_HTPASSWD_FILE", s.Viewers, viewer)
		}
	}
	r.Auth = users
}

var headerName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9-]*$`)

func (s *Settings) resolveProxy(r *Resolved, fault func(string, ...any)) {
	if !headerName.MatchString(s.ProxyUserHeader) {
		fault("WEIR_PROXY_USER_HEADER = %q: must be a header's name such as X-Forwarded-User, where WEIR_PROXY_CIDRS is set", s.ProxyUserHeader)
	}
	auth := &ProxyAuth{Header: http.CanonicalHeaderKey(s.ProxyUserHeader)}
	for _, text := range listOf(s.ProxyCIDRs) {
		prefix, err := netip.ParsePrefix(text)
		if err != nil {
			fault("WEIR_PROXY_CIDRS = %q: %q must be a range of addresses such as 10.0.0.0/8 or 10.1.2.3/32", s.ProxyCIDRs, text)
			continue
		}
		if prefix.Bits() == 0 {
			fault("WEIR_PROXY_CIDRS = %q: %q must not be every address: anybody could then name themselves", s.ProxyCIDRs, text)
		}
		auth.Proxies = append(auth.Proxies, prefix.Masked())
	}
	if len(listOf(s.ProxyCIDRs)) == 0 {
		fault("WEIR_PROXY_CIDRS = %q: must be at least one range of addresses, where WEIR_PROXY_USER_HEADER is set", s.ProxyCIDRs)
	}
	r.Auth = auth
}

// Logger writes as the settings say.
func (r *Resolved) Logger(w io.Writer) *slog.Logger {
	opts := &slog.HandlerOptions{Level: r.LogLevel}
	if r.LogJSON {
		return slog.New(slog.NewJSONHandler(w, opts))
	}
	return slog.New(slog.NewTextHandler(w, opts))
}

func listOf(text string) []string {
	list := strings.Split(text, ",")
	for i := range list {
		list[i] = strings.TrimSpace(list[i])
	}
	return nonEmpty(slices.Compact(list))
}

// isLoopbackHost is the check that needs no resolver; Listen has the last word.
func isLoopbackHost(host string) bool {
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}
