package ui

import (
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/netip"
	"runtime/debug"
	"strings"

	"github.com/weirqueue/weir/desk"
)

// maxBody is more than any form or list of job ids needs.
const maxBody = 1 << 20

// protect stands in front of every route. From the outside in: headers, panics, size, who asks, from which site, may
// they write.
func (s *Server) protect(next http.Handler) http.Handler {
	crossOrigin := http.NewCrossOriginProtection()
	crossOrigin.SetDenyHandler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.cfg.Logger.WarnContext(r.Context(), "Refused a request from another site", "path", r.URL.Path, "user", UserOf(r.Context()).Name)
		s.refuse(w, r, "This request came from another site, so nothing was changed.")
	}))
	h := crossOrigin.Handler(s.refuseViewers(next))
	h = s.authenticate(h, next)
	h = boundBody(h)
	return s.recoverPanics(secureHeaders(h))
}

// authenticate puts the user into the request's context. Health checks go to exempt, whoever asks.
func (s *Server) authenticate(next, exempt http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isHealthCheck(r) {
			exempt.ServeHTTP(w, r)
			return
		}
		var user User
		if s.cfg.Auth != nil {
			name, ok := s.cfg.Auth.identify(r)
			if !ok {
				s.refuseNobody(w, r)
				return
			}
			user = User{Name: name, Viewer: s.viewers[name]}
		} else if !isLoopbackName(r.Host) {
			// Without a password the address is all that protects, and a foreign name may be made to resolve to it.
			answerPlainly(w, http.StatusForbidden, "Without authentication this server answers under localhost, 127.0.0.1 or [::1] only.\n")
			return
		}
		next.ServeHTTP(w, r.WithContext(withUser(r.Context(), user)))
	})
}

func isHealthCheck(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false
	}
	switch r.URL.Path {
	case "/healthz", "/readyz", riverPrefix + "/api/health-checks/minimal", riverPrefix + "/api/health-checks/complete":
		return true
	}
	return false
}

func isLoopbackName(hostport string) bool {
	host, _, err := net.SplitHostPort(hostport)
	if err != nil {
		host = strings.Trim(hostport, "[]")
	}
	if strings.EqualFold(host, "localhost") {
		return true
	}
	address, err := netip.ParseAddr(host)
	return err == nil && address.Unmap().IsLoopback()
}

// refuseViewers lets viewers read only, and leaves a line in the log for everything that somebody changes.
func (s *Server) refuseViewers(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch r.Method {
		case http.MethodGet, http.MethodHead, http.MethodOptions:
			next.ServeHTTP(w, r)
			return
		}
		user := UserOf(r.Context())
		if user.Viewer {
			s.refuse(w, r, "You may look here and not change anything.")
			return
		}
		seen := &statusWriter{ResponseWriter: w}
		next.ServeHTTP(seen, r)
		level := slog.LevelInfo
		if isDesk(r) {
			level = slog.LevelDebug // somebody who types saves every other second
		}
		s.cfg.Logger.Log(r.Context(), level, "Operator's request", "user", user.Name, "method", r.Method, "path", r.URL.Path, "status", seen.code())
	})
}

// refuse says no in the form that the asker can show: River UI's script reads JSON.
func (s *Server) refuse(w http.ResponseWriter, r *http.Request, sentence string) {
	if strings.HasPrefix(r.URL.Path, riverPrefix+"/") {
		w.Header().Set("Content-Type", "application/json; charset=utf-8")
		w.Header().Set("Cache-Control", "no-store")
		w.WriteHeader(http.StatusForbidden)
		_, _ = w.Write([]byte(`{"message":"` + sentence + `"}` + "\n")) // a client that left needs no answer
		return
	}
	if isDesk(r) {
		desk.Refuse(w, r, desk.ErrForbidden)
		return
	}
	s.pages.fail(w, r, &pageError{status: http.StatusForbidden, sentence: sentence})
}

var errPanic = errors.New("ui: a panic in a request")

func (s *Server) recoverPanics(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen := &statusWriter{ResponseWriter: w}
		defer func() {
			p := recover()
			if p == nil {
				return
			}
			if p == http.ErrAbortHandler { //nolint:errorlint // net/http compares it so too
				panic(p)
			}
			s.cfg.Logger.ErrorContext(r.Context(), "Panic in a request", "path", r.URL.Path, "panic", p, slog.String("stack", string(debug.Stack())))
			switch {
			case seen.status != 0:
			case isDesk(r):
				desk.Refuse(w, r, errPanic)
			default:
				s.pages.fail(w, r, &pageError{status: http.StatusInternalServerError, sentence: somethingBroke})
			}
		}()
		next.ServeHTTP(seen, r)
	})
}
