package webhook

import (
	"cmp"
	"fmt"
	"net/http"
	"net/netip"

	"github.com/sluice-project/sluice/bulk"
)

// Options holds the settings of a Handler. The zero value of each field means
// its default.
type Options struct {
	// Secrets sign the requests to targets that TargetSecrets does not list. The current
	// secret comes first, followed, during a rotation, by those that it replaces. At most 10.
	// Default none: requests are not signed.
	Secrets []string
	// TargetSecrets holds the secrets of single targets, by the target's name
	// (bulk.Target.Name). They sign only where the target has a bulk.TargetLimits.URLPrefix,
	// whose own Secrets take precedence; without it, jobs of the target fail permanently.
	// Requests to a target with an empty list are not signed.
	TargetSecrets map[string][]string
	// Allow has the networks that requests may reach though they are not public, such as
	// 127.0.0.0/8. Default none: connections to loopback, private, link-local, multicast and
	// reserved addresses, and to those of this machine, are refused, whatever name they have,
	// and the job fails permanently.
	Allow []netip.Prefix
	// EnvironmentProxy sends requests through the proxies that HTTP_PROXY, HTTPS_PROXY and
	// NO_PROXY name. Allow does not apply to a request that goes through a proxy: the proxy
	// connects to the target, and must refuse private addresses itself. Default false.
	EnvironmentProxy bool
	// Transport sends the requests instead of the handler's own transport, which has HTTP/1.1
	// and HTTP/2, takes at most 10 s to connect, and keeps IdleConnections connections. Allow,
	// EnvironmentProxy and IdleConnections do not apply to a transport set here.
	Transport http.RoundTripper
	// IdleConnections is the number of connections to one target that are kept for the next
	// requests. If it is below the number of workers, some requests have to connect again.
	// Default 1,024; at most 65,536.
	IdleConnections int
	// MaxResponseBytes is the maximum size of a result. A longer body is no result, but the
	// job still succeeds. Default 64 KiB; at most 16 MiB.
	MaxResponseBytes int64
	// UserAgent is the User-Agent of the requests. Default "Sluice".
	UserAgent string
}

// The defaults and limits of options.
const (
	DefaultIdleConnections = 1024
	MostIdleConnections    = 65_536
	DefaultResponseBytes   = 64 << 10
	MostResponseBytes      = 16 << 20
	// MostSecrets is the maximum number of secrets of one target.
	MostSecrets = bulk.MaxSecrets
)

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.IdleConnections < 0 || o.IdleConnections > MostIdleConnections:
		return o, fmt.Errorf("webhook: idle connections %d: want 1 to %d, or 0 for the default", o.IdleConnections, MostIdleConnections)
	case o.MaxResponseBytes < 0 || o.MaxResponseBytes > MostResponseBytes:
		return o, fmt.Errorf("webhook: max response bytes %d: want 1 to %d, or 0 for the default", o.MaxResponseBytes, int64(MostResponseBytes))
	case !printableASCII(o.UserAgent):
		return o, fmt.Errorf("webhook: user agent %q: want printable ASCII", o.UserAgent)
	}
	o.IdleConnections = cmp.Or(o.IdleConnections, DefaultIdleConnections)
	if o.MaxResponseBytes == 0 {
		o.MaxResponseBytes = DefaultResponseBytes
	}
	o.UserAgent = cmp.Or(o.UserAgent, "Sluice")
	if o.Transport == nil {
		direct := newGuarded(o.IdleConnections, o.Allow)
		o.Transport = direct
		if o.EnvironmentProxy {
			o.Transport = newProxies(direct, o.IdleConnections, http.ProxyFromEnvironment)
		}
	}
	return o, nil
}

func printableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
