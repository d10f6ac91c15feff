package proxied

import (
	"net/http"
	"net/netip"
	"strings"
)

// MaxHops is the most addresses of X-Forwarded-For that are read, nearest first.
const MaxHops = 32

// header is the only header that is read. A proxy that appends to it passes on
// Forwarded as the client sent it, so reading both would believe the client.
const header = "X-Forwarded-For"

// Client returns the address of the client that made a request: that of the
// connection, or, if a trusted proxy made it, the last address of X-Forwarded-For
// that is not a trusted proxy. If all are trusted, it is the farthest; where an entry
// is malformed, it is the proxy that passed it on. IPv4 addresses within IPv6 become
// IPv4, and zones are removed. It is the zero Addr if the connection has no IP
// address.
func Client(r *http.Request, trusted []netip.Prefix) netip.Addr {
	client := parse(r.RemoteAddr)
	if !contains(trusted, client) {
		return client
	}
	hops := 0
	lines := r.Header[header]
	for i := len(lines) - 1; i >= 0; i-- {
		for rest, more := lines[i], true; more; hops++ {
			var entry string
			rest, entry, more = cutLast(rest)
			address := parse(entry)
			if !address.IsValid() || hops == MaxHops {
				return client
			}
			client = address
			if !contains(trusted, client) {
				return client
			}
		}
	}
	return client
}

// Shared reports whether an address that Client returned is one of many visitors rather than
// a visitor's own: that of this machine, of a private network or of a trusted proxy. It
// belongs to a proxy that does not say whose requests it passes on, or to a program that
// acts for others.
func Shared(client netip.Addr, trusted []netip.Prefix) bool {
	return client.IsLoopback() || client.IsPrivate() || client.IsLinkLocalUnicast() || contains(trusted, client)
}

// cutLast splits off the last entry of a list.
func cutLast(list string) (rest, last string, more bool) {
	comma := strings.LastIndexByte(list, ',')
	if comma < 0 {
		return "", strings.TrimSpace(list), false
	}
	return list[:comma], strings.TrimSpace(list[comma+1:]), true
}

// parse reads an address with or without a port, and IPv6 with or without
// brackets. It returns the zero Addr for anything else.
func parse(text string) netip.Addr {
	if at, err := netip.ParseAddrPort(text); err == nil {
		return at.Addr().Unmap().WithZone("")
	}
	if inner, ok := strings.CutPrefix(text, "["); ok {
		text = strings.TrimSuffix(inner, "]")
	}
	address, err := netip.ParseAddr(text)
	if err != nil {
		return netip.Addr{}
	}
	return address.Unmap().WithZone("")
}

func contains(prefixes []netip.Prefix, address netip.Addr) bool {
	for _, prefix := range prefixes {
		if prefix.Contains(address) {
			return true
		}
	}
	return false
}
