package ui

import (
	"net/http"
	"net/netip"
)

// ProxyAuth takes the user's name from a header that a proxy in front sets, and only from that proxy.
type ProxyAuth struct {
	// Header is the header's name, such as X-Forwarded-User. The proxy must remove what its client sent under it.
	Header string
	// Proxies are the addresses that the proxy connects from.
	Proxies []netip.Prefix
}

func (a *ProxyAuth) identify(r *http.Request) (string, bool) {
	peer, err := netip.ParseAddrPort(r.RemoteAddr)
	if err != nil {
		return "", false
	}
	address := peer.Addr().Unmap().WithZone("")
	for _, prefix := range a.Proxies {
		if prefix.Contains(address) {
			// Two values mean that the proxy passed its client's own on: neither can be trusted.
			values := r.Header.Values(a.Header)
			if len(values) != 1 || values[0] == "" {
				return "", false
			}
			return values[0], true
		}
	}
	return "", false
}

// refuse asks for nothing: signing in is the proxy's to offer.
func (a *ProxyAuth) refuse(w http.ResponseWriter) {
	answerPlainly(w, http.StatusForbidden, "This server is reached through its proxy, which says who you are.\n")
}
