package ui

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/weirqueue/weir/desk"
)

// localOwner owns the documents of a server without authentication. No user who signs in can have the name: it holds a
// colon, which ends a name in Basic authentication and in a htpasswd file.
const localOwner desk.Owner = ":local"

// ownerOf is whose documents a request sees.
func ownerOf(r *http.Request) desk.Owner {
	if name := UserOf(r.Context()).Name; name != "" {
		return desk.Owner(name)
	}
	return localOwner
}

// newDesk makes the store of documents and its API, for users whom authenticate has let in.
func newDesk(cfg Config) (*desk.Store, *desk.Handler, error) {
	store, err := desk.NewStore(cfg.Pool)
	if err != nil {
		return nil, nil, fmt.Errorf("ui: %w", err)
	}
	handler, err := desk.NewHandler(desk.HandlerConfig{
		Store: store, Logger: cfg.Logger, Identify: func(r *http.Request) (desk.Owner, error) { return ownerOf(r), nil },
	})
	if err != nil {
		return nil, nil, fmt.Errorf("ui: %w", err)
	}
	return store, handler, nil
}

func isDesk(r *http.Request) bool { return strings.HasPrefix(r.URL.Path, desk.Prefix) }

// boundBody bounds what a request may send. The API of documents has a bound of its own, which is higher, and reads what
// is above it so that a browser sees the answer.
func boundBody(next http.Handler) http.Handler {
	bounded := http.MaxBytesHandler(next, maxBody)
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if isDesk(r) {
			next.ServeHTTP(w, r)
			return
		}
		bounded.ServeHTTP(w, r)
	})
}

// refuseNobody answers a request of nobody: a script is told so in its own form, so that it keeps what is not saved.
func (s *Server) refuseNobody(w http.ResponseWriter, r *http.Request) {
	if !isDesk(r) {
		s.cfg.Auth.refuse(w)
		return
	}
	if _, proxy := s.cfg.Auth.(*ProxyAuth); !proxy {
		w.Header().Set("WWW-Authenticate", basicChallenge)
	}
	desk.Refuse(w, r, desk.ErrUnauthenticated)
}
