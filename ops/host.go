package ops

import (
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/edge/problem"
)

// AnyHost, among the hosts of Options, lets requests ask for any.
const AnyHost = "*"

// knownHosts refuses requests that ask for a host with another name. A page that has its
// own name resolve to this server's address (DNS rebinding) is of the same origin to the
// browser, and would call the API as its own.
func knownHosts(names []string, next http.Handler) http.Handler {
	if slices.Contains(names, AnyHost) {
		return next
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !knownHost(names, r.Host) {
			edge.Refuse(http.StatusMisdirectedRequest, problem.Host,
				"this server does not know the host "+strings.ToValidUTF8(r.Host[:min(len(r.Host), 100)], "?")+
					": use its address, or add the name to the setting http_hosts").Write(w)
			return
		}
		next.ServeHTTP(w, r)
	})
}

func knownHost(names []string, host string) bool {
	if strings.Contains(host, ":") {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
	}
	host = strings.TrimSuffix(strings.Trim(host, "[]"), ".")
	same := func(name string) bool { return strings.EqualFold(name, host) }
	if host == "" || same("localhost") || slices.ContainsFunc(names, same) {
		return true
	}
	_, err := netip.ParseAddr(host)
	return err == nil
}
