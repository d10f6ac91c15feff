package proxied

import (
	"net/http"
	"net/netip"
	"strings"
)

// MaxHops is how many addresses of X-Forwarded-For are read, the nearest first.
const MaxHops = 32

// header is the only one that is read. A proxy that appends to this one passes on
// Forwarded as the client sent it, so believing both would believe the client.
const header = "X-Forwarded-For"

// Client returns the address of the client that made a request: that of the
// connection, or, if it is of a trusted proxy, the last address of X-Forwarded-For
// that is not. If all are trusted, it is the farthest; where an entry cannot be
// read, it is the proxy that passed it on. IPv4 addresses within IPv6 become IPv4,
// and zones are left out. The zero Addr: the connection has no IP address.
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

// cutLast cuts the last entry off a list.
func cutLast(list string) (rest, last string, more bool) {
	comma := strings.LastIndexByte(list, ',')
	if comma < 0 {
		return "", strings.TrimSpace(list), false
	}
	return list[:comma], strings.TrimSpace(list[comma+1:]), true
}

// parse reads an address with or without a port, and IPv6 with or without
// brackets. The zero Addr: it is none.
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
