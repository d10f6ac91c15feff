package gate

import (
	"cmp"
	"context"
	"crypto/tls"
	"errors"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/netip"
	"net/url"
	"slices"
	"strings"
	"sync"
	"time"
)

// ProxyOptions are the settings of a Proxy.
type ProxyOptions struct {
	// TrustedProxies are the proxies whose X-Forwarded headers are passed on, with the
	// address of the connection added; those of others are replaced. Default: none.
	TrustedProxies []netip.Prefix
	// Host is sent as the host. Default: the host of the visitor's request, which is also
	// in X-Forwarded-Host.
	Host string
	// HeaderTimeout is how long the upstream may take to begin its answer. Default 60 s.
	HeaderTimeout time.Duration
	// Failed answers for an upstream that does not, with status 502 or 504; see
	// [Gate.Failed]. Default: a line of text.
	Failed func(w http.ResponseWriter, r *http.Request, status int)
	// Logger gets failures. Default: slog.Default().
	Logger *slog.Logger
	// TLS is for an upstream over https. Default: the system's roots.
	TLS *tls.Config
	// Meter counts how the upstream answers visitors inside. Default: none.
	Meter *Meter
	// Metrics count all answers of the upstream. Requests must come through a [Gate]: it sets the
	// header that names the room. Default: none.
	Metrics *Metrics
	// Dial opens connections to the upstream. Default: [Dialer].DialContext.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// Dialer opens connections to upstreams.
var Dialer = &net.Dialer{Timeout: dialTime, KeepAlive: 30 * time.Second}

// The bounds of connections to the upstream.
const (
	dialTime          = 5 * time.Second
	idleTime          = 90 * time.Second
	maxIdle           = 512
	maxAnswerHeader   = 1 << 20
	defaultHeaderTime = 60 * time.Second
	bufferSize        = 32 << 10
)

// Proxy returns a reverse proxy. It streams answers, and connections may be upgraded, to
// WebSocket for example.
func Proxy(upstream *url.URL, options ProxyOptions) (http.Handler, error) {
	if upstream == nil || upstream.Host == "" || (upstream.Scheme != "http" && upstream.Scheme != "https") {
		return nil, errors.New("upstream: want http:// or https:// with a host, such as http://127.0.0.1:3000")
	}
	options.Logger = cmp.Or(options.Logger, slog.Default())
	if options.Dial == nil {
		options.Dial = Dialer.DialContext
	}
	if options.HeaderTimeout <= 0 {
		options.HeaderTimeout = defaultHeaderTime
	}
	if options.Failed == nil {
		options.Failed = func(w http.ResponseWriter, _ *http.Request, status int) {
			http.Error(w, http.StatusText(status), status)
		}
	}
	return &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { options.rewrite(r, upstream) },
		Transport:     options.transport(),
		FlushInterval: -1,
		BufferPool:    &buffers{},
		ErrorLog:      slog.NewLogLogger(options.Logger.Handler(), slog.LevelWarn),
		ErrorHandler:  options.fail,
	}, nil
}

// buffers are what answers are copied with.
type buffers struct{ sync.Pool }

// Get implements httputil.BufferPool.
func (b *buffers) Get() []byte {
	if buffer, ok := b.Pool.Get().(*[bufferSize]byte); ok {
		return buffer[:]
	}
	return make([]byte, bufferSize)
}

// Put implements httputil.BufferPool.
func (b *buffers) Put(buffer []byte) { b.Pool.Put((*[bufferSize]byte)(buffer)) }

func (o *ProxyOptions) rewrite(r *httputil.ProxyRequest, upstream *url.URL) {
	// Nothing here depends on the query, so the upstream gets it unchanged.
	r.Out.URL.RawQuery = r.In.URL.RawQuery
	r.SetURL(upstream)
	trusted := trustedPeer(r.In, o.TrustedProxies)
	dropClaims(r.Out.Header, trusted)
	keepVisitor(r)
	dropTunnel(r.Out.Header)
	r.Out.Host = r.In.Host
	if o.Host != "" {
		r.Out.Host = o.Host
	}
	if trusted {
		r.Out.Header["X-Forwarded-For"] = r.In.Header["X-Forwarded-For"]
	}
	r.SetXForwarded()
	if trusted {
		for _, name := range []string{"X-Forwarded-Host", "X-Forwarded-Proto"} {
			if value := r.In.Header.Get(name); value != "" {
				r.Out.Header.Set(name, value)
			}
		}
	}
}

// keepVisitor sends the visitor's headers as the gate has set them: a client cannot remove one,
// by naming it in Connection.
func keepVisitor(r *httputil.ProxyRequest) {
	for _, name := range visitorHeaders {
		if values := r.In.Header[name]; len(values) > 0 {
			r.Out.Header[name] = values
		}
	}
}

// claims are headers by which upstreams take a request for another than the gate has
// judged: of another path or method, or from another address.
var claims = map[string]bool{
	"X-Original-Url": true, "X-Rewrite-Url": true, "X-Original-Uri": true,
	"X-Http-Method-Override": true, "X-Http-Method": true, "X-Method-Override": true,
	"X-Real-Ip": true, "X-Client-Ip": true, "Client-Ip": true, "True-Client-Ip": true, "Cf-Connecting-Ip": true, "Fastly-Client-Ip": true,
	"X-Cluster-Client-Ip": true, "X-Original-Host": true, "X-Host": true,
	"Forwarded": true, "X-Forwarded": true, "X-Forwarded-For": true, "X-Forwarded-Host": true, "X-Forwarded-Proto": true,
	"X-Forwarded-Port": true, "X-Forwarded-Prefix": true, "X-Forwarded-Scheme": true, "X-Forwarded-Server": true, "X-Forwarded-Ssl": true,
}

// dropClaims removes claims, except those of a trusted proxy, and headers that an upstream may
// read as one of the visitor's. Many upstreams take an underscore for a hyphen; no proxy sends
// one.
func dropClaims(header http.Header, trusted bool) {
	for name := range header {
		plain, forged := name, strings.Contains(name, "_")
		if forged {
			plain = http.CanonicalHeaderKey(strings.ReplaceAll(name, "_", "-"))
		}
		if claims[plain] && (!trusted || forged) || forged && slices.Contains(visitorHeaders, plain) {
			delete(header, name)
		}
	}
}

// dropTunnel removes an upgrade to another HTTP (h2c): requests within it would reach the
// upstream without the gate.
func dropTunnel(header http.Header) {
	for protocol := range strings.SplitSeq(header.Get("Upgrade"), ",") {
		name, _, _ := strings.Cut(strings.ToLower(strings.TrimSpace(protocol)), "/")
		if name == "h2c" || name == "h2" || name == "http" || name == "tls" {
			header.Del("Upgrade")
			header.Del("Connection")
			return
		}
	}
}

func (o *ProxyOptions) transport() http.RoundTripper {
	var t http.RoundTripper = o.connections()
	if o.Meter != nil {
		t = metered{t, o.Meter}
	}
	if o.Metrics != nil {
		t = observed{t, o.Metrics}
	}
	return carried{t}
}

func (o *ProxyOptions) connections() *http.Transport {
	return &http.Transport{
		DialContext:            o.Dial,
		TLSClientConfig:        o.TLS,
		TLSHandshakeTimeout:    dialTime,
		ForceAttemptHTTP2:      true,
		MaxIdleConns:           maxIdle,
		MaxIdleConnsPerHost:    maxIdle,
		IdleConnTimeout:        idleTime,
		ResponseHeaderTimeout:  o.HeaderTimeout,
		ExpectContinueTimeout:  time.Second,
		MaxResponseHeaderBytes: maxAnswerHeader,
		// The visitor's Accept-Encoding is passed on unchanged.
		DisableCompression: true,
	}
}

// fail answers for an upstream that does not.
func (o *ProxyOptions) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(r.Context().Err(), context.Canceled) {
		return // The visitor has gone.
	}
	status := http.StatusBadGateway
	if timedOut(err) {
		status = http.StatusGatewayTimeout
	}
	o.Logger.WarnContext(r.Context(), "the upstream does not answer", "host", r.URL.Host, "error", err)
	if behind, ok := w.(*releaser); ok {
		r = behind.visit.r // The page has links to what the visitor has asked for.
	}
	o.Failed(w, r, status)
}
