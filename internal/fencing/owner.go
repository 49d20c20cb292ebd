package fencing

import (
	"crypto/rand"
	"encoding/hex"
	"fmt"
	"os"
	"strings"
)

// NewOwner returns the name under which a process holds leases: host, pid, and random bytes, since host and pid come
// back after a restart and a name that comes back would make an orphan look owned.
func NewOwner() string {
	host, err := os.Hostname()
	if err != nil || host == "" {
		host = "unknown"
	}
	host = strings.ToValidUTF8(strings.ReplaceAll(host, "\x00", ""), "")
	if len(host) > 60 {
		host = host[:60]
	}
	var random [6]byte
	_, _ = rand.Read(random[:]) // never fails, by its documentation
	return fmt.Sprintf("%s:%d:%s", host, os.Getpid(), hex.EncodeToString(random[:]))
}
