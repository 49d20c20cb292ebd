package ui

import (
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"net/http"
)

// User is who asks.
type User struct {
	// Name is empty when the server runs without authentication.
	Name string
	// Viewer says that the user may look and not write.
	Viewer bool
}

// Auth says who asks. It is one of BasicAuth, *Htpasswd and *ProxyAuth.
type Auth interface {
	// identify returns the name of the user, or false when nobody proved to be one.
	identify(r *http.Request) (name string, ok bool)
	// refuse answers a request of nobody.
	refuse(w http.ResponseWriter)
}

// BasicAuth is one user with full rights.
type BasicAuth struct {
	User, Password string
}

func (a BasicAuth) identify(r *http.Request) (string, bool) {
	user, password, ok := r.BasicAuth()
	// Both are compared in any case, so that the time taken does not tell which one was wrong.
	same := constantTimeEqual(user, a.User) & constantTimeEqual(password, a.Password)
	return user, ok && same == 1
}

func (a BasicAuth) refuse(w http.ResponseWriter) { challenge(w) }

// constantTimeEqual compares digests, so that the time taken does not tell the length either.
func constantTimeEqual(a, b string) int {
	x, y := sha256.Sum256([]byte(a)), sha256.Sum256([]byte(b))
	return subtle.ConstantTimeCompare(x[:], y[:])
}

const basicChallenge = `Basic realm="Weir", charset="UTF-8"`

func challenge(w http.ResponseWriter) {
	w.Header().Set("WWW-Authenticate", basicChallenge)
	answerPlainly(w, http.StatusUnauthorized, "Sign in to see this page.\n")
}

type userKey struct{}

// UserOf returns who makes the request that ctx belongs to.
func UserOf(ctx context.Context) User {
	user, _ := ctx.Value(userKey{}).(User)
	return user
}

func withUser(ctx context.Context, u User) context.Context {
	return context.WithValue(ctx, userKey{}, u)
}
