package ui

import (
	"errors"
	"fmt"
	"net"
)

// ErrPublic is returned by Listen for an address that others can reach, when nobody would have to sign in.
var ErrPublic = errors.New("ui: refusing to listen on an address that other machines can reach without authentication")

// Listen listens on host:port. Without authentication it takes loopback addresses only. An empty host is all addresses.
func Listen(host, port string, auth Auth) (net.Listener, error) {
	// Resolved once, so that what was checked is what is bound.
	address, err := net.ResolveTCPAddr("tcp", net.JoinHostPort(host, port))
	if err != nil {
		return nil, fmt.Errorf("ui: listen: %w", err)
	}
	if auth == nil && !address.IP.IsLoopback() {
		return nil, fmt.Errorf("%w: %s", ErrPublic, address)
	}
	l, err := net.ListenTCP("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("ui: listen: %w", err)
	}
	return l, nil
}
