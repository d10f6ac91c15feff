package webhook

import (
	"errors"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"syscall"
	"time"
)

const maxHeaderBytes = 64 << 10

// newTransport returns a transport that keeps idle connections to each target, and connects
// only where control lets it. The number of workers bounds the connections in use.
func newTransport(idlePerTarget int, control func(network, address string, _ syscall.RawConn) error) *http.Transport {
	dialer := &net.Dialer{Timeout: 10 * time.Second, KeepAlive: 30 * time.Second, Control: control}
	return &http.Transport{
		DialContext:            dialer.DialContext,
		ForceAttemptHTTP2:      true,
		TLSHandshakeTimeout:    10 * time.Second,
		MaxIdleConnsPerHost:    idlePerTarget,
		MaxIdleConns:           4 * idlePerTarget,
		IdleConnTimeout:        90 * time.Second,
		MaxResponseHeaderBytes: maxHeaderBytes,
		// Results are small: decompression would cost more than it saves.
		DisableCompression: true,
	}
}

// newGuarded returns the transport of a handler that has no other.
func newGuarded(idlePerTarget int, allow []netip.Prefix) *http.Transport {
	g := &guard{allow: allow, own: net.InterfaceAddrs}
	return newTransport(idlePerTarget, g.control)
}

// proxies sends the requests that proxyOf has a proxy for through it, and the others
// directly. A proxy's own address needs no check: the operator chose it.
type proxies struct {
	direct, proxied *http.Transport
	proxyOf         func(*http.Request) (*url.URL, error)
}

func newProxies(direct *http.Transport, idlePerTarget int, proxyOf func(*http.Request) (*url.URL, error)) *proxies {
	proxied := newTransport(idlePerTarget, nil)
	proxied.Proxy = proxyOf
	return &proxies{direct, proxied, proxyOf}
}

// RoundTrip implements http.RoundTripper.
func (p *proxies) RoundTrip(request *http.Request) (*http.Response, error) {
	switch proxy, err := p.proxyOf(request); {
	case err != nil:
		return nil, errors.New("the proxy that the environment names is no URL") // err would quote it
	case proxy != nil:
		return p.proxied.RoundTrip(request)
	default:
		return p.direct.RoundTrip(request)
	}
}

// CloseIdleConnections closes the idle connections.
func (p *proxies) CloseIdleConnections() {
	p.direct.CloseIdleConnections()
	p.proxied.CloseIdleConnections()
}
