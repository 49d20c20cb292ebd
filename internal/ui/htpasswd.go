package ui

import (
	"bufio"
	"bytes"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"net/http"
	"runtime"
	"strings"
	"sync"

	"golang.org/x/crypto/bcrypt"
)

// maxBcryptCost keeps one sign-in under a few seconds.
const maxBcryptCost = 16

// Htpasswd is several users with bcrypt hashes. It is read once: a changed file needs a restart.
type Htpasswd struct {
	hashes map[string][]byte
	nobody []byte // compared for unknown users, so that the time taken does not tell who exists

	// bcrypt is slow on purpose and River UI asks every few seconds, so a password that was right is remembered as a
	// keyed digest, in memory only.
	key      []byte
	mu       sync.Mutex
	verified map[string][]byte

	turns chan struct{} // bounds the CPU that wrong passwords can take
}

// ParseHtpasswd reads lines of user:hash, as `htpasswd -B` writes them. Empty lines and lines that begin with # are
// skipped. The error names every line that cannot be used, and never a hash.
func ParseHtpasswd(r io.Reader) (*Htpasswd, error) {
	h := &Htpasswd{
		hashes: map[string][]byte{}, key: make([]byte, 32), verified: map[string][]byte{},
		turns: make(chan struct{}, max(1, runtime.GOMAXPROCS(0)/2)),
	}
	_, _ = rand.Read(h.key) // never fails
	var faults []error
	lines := bufio.NewScanner(r)
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		if err := h.add(line); err != nil {
			faults = append(faults, fmt.Errorf("line %d: %w", n, err))
		}
	}
	if err := lines.Err(); err != nil {
		faults = append(faults, err)
	}
	if len(h.hashes) == 0 && len(faults) == 0 {
		faults = append(faults, errors.New("no user: a line is user:hash, as `htpasswd -B` writes it"))
	}
	return h, errors.Join(faults...)
}

func (h *Htpasswd) add(line string) error {
	user, hash, ok := strings.Cut(line, ":")
	if !ok || user == "" {
		return errors.New("must be user:hash")
	}
	if _, twice := h.hashes[user]; twice {
		return fmt.Errorf("user %q is there twice", user)
	}
	cost, err := bcrypt.Cost([]byte(hash))
	if err != nil || len(hash) != 60 {
		return fmt.Errorf("user %q: the hash must be a bcrypt one, as `htpasswd -B` writes it", user)
	}
	if cost > maxBcryptCost {
		return fmt.Errorf("user %q: the bcrypt cost is %d, and must be at most %d", user, cost, maxBcryptCost)
	}
	h.hashes[user] = []byte(hash)
	if h.nobody == nil {
		h.nobody = []byte(hash)
	}
	return nil
}

// Has reports whether there is such a user.
func (h *Htpasswd) Has(user string) bool { return h.hashes[user] != nil }

func (h *Htpasswd) identify(r *http.Request) (string, bool) {
	user, password, ok := r.BasicAuth()
	if !ok {
		return "", false
	}
	mac := hmac.New(sha256.New, h.key)
	_, _ = fmt.Fprintf(mac, "%d:%s:%s", len(user), user, password)
	digest := mac.Sum(nil)
	h.mu.Lock()
	known := hmac.Equal(h.verified[user], digest)
	h.mu.Unlock()
	if known {
		return user, true
	}
	select {
	case h.turns <- struct{}{}:
		defer func() { <-h.turns }()
	case <-r.Context().Done():
		return "", false
	}
	hash, exists := h.hashes[user]
	if !exists {
		hash = h.nobody
	}
	if bcrypt.CompareHashAndPassword(hash, []byte(password)) != nil || !exists {
		return "", false
	}
	h.mu.Lock()
	h.verified[user] = bytes.Clone(digest)
	h.mu.Unlock()
	return user, true
}

func (h *Htpasswd) refuse(w http.ResponseWriter) { challenge(w) }
