package webhook

import (
	"fmt"
	"net"
	"net/http"
	"net/url"
	"time"
)

// Options holds the settings of a Handler. The zero value of each field means
// its default.
type Options struct {
	// Secrets sign the requests to targets that TargetSecrets does not list: the
	// current one first, then, while keys rotate, those it replaces. At most 10.
	// Default none: requests are not signed.
	Secrets []string
	// TargetSecrets holds the secrets of single targets, by the target's name
	// (bulk.Target.Name; it defaults to the URL's host:port). A target with an
	// empty list is not signed.
	TargetSecrets map[string][]string
	// Transport sends the requests. Default one of this handler's own: HTTP/1.1
	// and HTTP/2, proxies from the environment, 10 s at most to connect, and
	// connections kept as IdleConnections says. It is used as it is, so
	// IdleConnections does not apply to one that is given here.
	Transport http.RoundTripper
	// IdleConnections is how many connections to one target are kept for the
	// next requests. Below the number of workers, some requests each have to
	// connect anew. Default 1,024; at most 65,536.
	IdleConnections int
	// MaxResponseBytes is how much of an answer's body is read as the result. A
	// longer body is no result: the job still succeeds. Default 64 KiB; at most
	// 16 MiB.
	MaxResponseBytes int64
	// UserAgent is the User-Agent of the requests. Default "Sluice".
	UserAgent string
	// AllowTarget, if set, is asked before each request; its error fails the job
	// for good. It must not change the URL, and is called concurrently.
	AllowTarget func(*url.URL) error
}

// The defaults and the bounds of options.
const (
	DefaultIdleConnections = 1024
	MostIdleConnections    = 65_536
	DefaultResponseBytes   = 64 << 10
	MostResponseBytes      = 16 << 20
	// MostSecrets is how many secrets there may be for one target.
	MostSecrets = 10
)

const maxHeaderBytes = 64 << 10

func (o Options) withDefaults() (Options, error) {
	switch {
	case o.IdleConnections < 0 || o.IdleConnections > MostIdleConnections:
		return o, fmt.Errorf("webhook: idle connections %d: want 1 to %d, or 0 for the default", o.IdleConnections, MostIdleConnections)
	case o.MaxResponseBytes < 0 || o.MaxResponseBytes > MostResponseBytes:
		return o, fmt.Errorf("webhook: max response bytes %d: want 1 to %d, or 0 for the default", o.MaxResponseBytes, int64(MostResponseBytes))
	case !printableASCII(o.UserAgent):
		return o, fmt.Errorf("webhook: user agent %q: want printable ASCII", o.UserAgent)
	}
	if o.IdleConnections == 0 {
		o.IdleConnections = DefaultIdleConnections
	}
	if o.MaxResponseBytes == 0 {
		o.MaxResponseBytes = DefaultResponseBytes
	}
	if o.UserAgent == "" {
		o.UserAgent = "Sluice"
	}
	if o.Transport == nil {
		o.Transport = newTransport(o.IdleConnections)
	}
	return o, nil
}

// newTransport keeps idle connections to each target. Connections in use are
// bounded by the number of workers.
func newTransport(idlePerTarget int) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second}
	return &http.Transport{
		Proxy:                  http.ProxyFromEnvironment,
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConnsPerHost:    idlePerTarget,
		MaxIdleConns:           4 * idlePerTarget,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
		// Results are small: unpacking them would cost more than it saves.
		DisableCompression: true,
	}
}

func printableASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}
