package gate

import (
	"bufio"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"io"
	"log"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/room"
)

// front starts an upstream, and a gate with a proxy in front of it, over real connections. Visitor
// 1 is inside.
func front(t *testing.T, options ProxyOptions, upstream http.HandlerFunc) (*stand, string) {
	t.Helper()
	behind := httptest.NewServer(upstream)
	t.Cleanup(behind.Close)
	s := newStand(t, nil)
	s.set(1, room.Inside)
	return s, serveProxy(t, s, options, behind.URL)
}

func serveProxy(t *testing.T, s *stand, options ProxyOptions, upstream string) string {
	t.Helper()
	target, err := url.Parse(upstream)
	if err != nil {
		t.Fatal(err)
	}
	options.Logger, options.Failed = slog.New(slog.DiscardHandler), s.gate.Failed
	proxy, err := Proxy(target, options)
	if err != nil {
		t.Fatal(err)
	}
	server := httptest.NewServer(s.gate.Middleware(proxy))
	t.Cleanup(func() {
		server.Close()
		closeIdle(proxy)
	})
	return server.URL
}

// fetch sends a request as a visitor, and reads the answer.
func fetch(t *testing.T, method, target, body string, askers ...asker) *reply {
	t.Helper()
	transport := &http.Transport{DisableCompression: true}
	t.Cleanup(transport.CloseIdleConnections)
	response, err := transport.RoundTrip(newRequest(t, method, target, body, askers...))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	read, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return &reply{StatusCode: response.StatusCode, Header: response.Header, body: string(read)}
}

func newRequest(t *testing.T, method, target, body string, askers ...asker) *http.Request {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, target, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for _, change := range askers {
		change(request)
	}
	return request
}

func TestProxyPassesThrough(t *testing.T) {
	var got *http.Request
	var body string
	s, address := front(t, ProxyOptions{}, func(w http.ResponseWriter, r *http.Request) {
		got = r.Clone(r.Context())
		read, _ := io.ReadAll(r.Body)
		body = string(read)
		w.Header().Set("X-Own", "1")
		w.WriteHeader(http.StatusTeapot)
		_, _ = io.WriteString(w, "short and stout")
	})
	host := strings.TrimPrefix(address, "http://")
	response := fetch(t, http.MethodPost, address+"/a%2Fb?c=d&c=e;f", "order=1", pass(1), header("X-Forwarded-For", "203.0.113.9"),
		header("X-Forwarded-Proto", "https"), header("Accept-Encoding", "br"), header("Sluice-Pass", "forged"))
	expect(t, response, http.StatusTeapot, "short and stout")
	if body != "order=1" || got.URL.EscapedPath() != "/a%2Fb" || got.URL.RawQuery != "c=d&c=e;f" || got.Host != host || response.Header.Get("X-Own") != "1" {
		t.Errorf("body %q, URL %v, host %q", body, got.URL, got.Host)
	}
	for name, want := range map[string]string{
		"X-Forwarded-For": "127.0.0.1", "X-Forwarded-Proto": "http", "X-Forwarded-Host": host, "Accept-Encoding": "br", "Sluice-Pass": "PASS-1",
	} {
		if value := got.Header.Get(name); value != want {
			t.Errorf("%s = %q; want %q", name, value, want)
		}
	}
	// Behind the gate, a visitor who is not inside is unknown.
	got = nil
	s.set(2, room.Waiting)
	expect(t, fetch(t, http.MethodGet, address+"/", "", asPage, ticket(2)), http.StatusOK, "You are in line")
	if got != nil {
		t.Error("the shop was asked")
	}
}

func TestProxyKeepsTheChainOfTrustedProxies(t *testing.T) {
	var got http.Header
	_, address := front(t, ProxyOptions{TrustedProxies: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Host: "shop.internal"},
		func(_ http.ResponseWriter, r *http.Request) {
			got = r.Header.Clone()
			got.Set("Host", r.Host)
		})
	fetch(t, http.MethodGet, address+"/", "", pass(1), header("X-Forwarded-For", "203.0.113.9"), header("X-Forwarded-Proto", "https"), header("X-Forwarded-Host", "shop.test"))
	for name, want := range map[string]string{
		"X-Forwarded-For": "203.0.113.9, 127.0.0.1", "X-Forwarded-Proto": "https", "X-Forwarded-Host": "shop.test", "Host": "shop.internal",
	} {
		if value := got.Get(name); value != want {
			t.Errorf("%s = %q; want %q", name, value, want)
		}
	}
}

// A visitor cannot tell the upstream to take the request for another one; a trusted proxy
// can, but not by the spellings that proxies do not use.
func TestProxyDropsClaims(t *testing.T) {
	claimed := map[string]string{
		"X-Original-Url": "/admin", "X-Rewrite-Url": "/admin", "X-Http-Method-Override": "DELETE", "X-Real-Ip": "10.0.0.1",
		"True-Client-Ip": "10.0.0.1", "X_forwarded_for": "10.0.0.1", "Forwarded": "for=10.0.0.1", "X-Forwarded-Prefix": "/admin",
	}
	for name, trusted := range map[string][]netip.Prefix{"a visitor": nil, "a trusted proxy": {netip.MustParsePrefix("127.0.0.0/8")}} {
		t.Run(name, func(t *testing.T) {
			var got http.Header
			_, address := front(t, ProxyOptions{TrustedProxies: trusted}, func(_ http.ResponseWriter, r *http.Request) { got = r.Header.Clone() })
			with := []asker{pass(1), header("X-Shop", "kept")}
			for claim, value := range claimed {
				with = append(with, header(claim, value))
			}
			fetch(t, http.MethodGet, address+"/", "", with...)
			if got.Get("X-Shop") != "kept" {
				t.Errorf("the shop's own header is lost: %v", got)
			}
			for claim := range claimed {
				want := trusted != nil && !strings.Contains(claim, "_") && claim != "Forwarded" // it says the same as X-Forwarded
				if kept := got[claim] != nil; kept != want {
					t.Errorf("%s is kept: %v, want %v", claim, kept, want)
				}
			}
		})
	}
}

// Each part of a stream arrives before the next is written.
func TestProxyStreams(t *testing.T) {
	next := make(chan struct{})
	_, address := front(t, ProxyOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "21") // must not buffer the parts
		for i := range 3 {
			_, _ = fmt.Fprintf(w, "part %d\n", i)
			_ = http.NewResponseController(w).Flush()
			<-next
		}
	})
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(newRequest(t, http.MethodGet, address+"/", "", pass(1)))
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	lines := bufio.NewScanner(response.Body)
	for i := range 3 {
		if !lines.Scan() || lines.Text() != fmt.Sprintf("part %d", i) {
			t.Fatalf("line %d = %q, %v", i, lines.Text(), lines.Err())
		}
		next <- struct{}{}
	}
}

// An upgraded connection carries bytes both ways, and ends with the visitor's connection.
func TestProxyUpgrades(t *testing.T) {
	ended := make(chan struct{})
	_, address := front(t, ProxyOptions{}, func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Upgrade") != "websocket" || r.Header.Get("Sec-Websocket-Key") == "" {
			t.Errorf("header = %v", r.Header)
		}
		conn, buffer, err := http.NewResponseController(w).Hijack()
		if err != nil {
			t.Error(err)
			return
		}
		defer close(ended)
		defer conn.Close()
		_, _ = io.WriteString(conn, "HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\r\n")
		for {
			line, err := buffer.ReadString('\n')
			if err != nil {
				return
			}
			_, _ = io.WriteString(conn, "echo "+line)
		}
	})
	conn, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", strings.TrimPrefix(address, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_, _ = io.WriteString(conn, "GET /live HTTP/1.1\r\nHost: shop.test\r\nConnection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Key: a\r\nCookie: sluice_pass_shop=PASS-1\r\n\r\n")
	reader := bufio.NewReader(conn)
	response, err := http.ReadResponse(reader, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusSwitchingProtocols {
		t.Fatalf("status = %d", response.StatusCode)
	}
	for _, word := range []string{"hello", "again"} {
		_, _ = io.WriteString(conn, word+"\n")
		if line, err := reader.ReadString('\n'); line != "echo "+word+"\n" {
			t.Fatalf("%q, %v", line, err)
		}
	}
	_ = conn.Close()
	<-ended
	// Without a pass there is no upgrade.
	refused := fetch(t, http.MethodGet, address+"/live", "", header("Connection", "Upgrade"), header("Upgrade", "websocket"))
	expect(t, refused, http.StatusServiceUnavailable)
}

func TestProxyReleases(t *testing.T) {
	s, address := front(t, ProxyOptions{}, func(w http.ResponseWriter, _ *http.Request) {
		w.WriteHeader(http.StatusEarlyHints)
		w.Header().Set("Sluice-Release", "pass")
		w.Header().Set("Set-Cookie", "own=1")
		_, _ = io.WriteString(w, "thanks")
	})
	response := fetch(t, http.MethodGet, address+"/thanks", "", asPage, pass(1), ticket(1))
	expect(t, response, http.StatusOK, "thanks")
	if response.Header.Get("Sluice-Release") != "" || len(s.left) != 1 || cookieOf(response, "own") == nil {
		t.Errorf("left = %v, header = %v", s.left, response.Header)
	}
	if c := cookieOf(response, "sluice_pass_shop"); c == nil || c.MaxAge >= 0 {
		t.Errorf("cookie = %v", c)
	}
}

func TestUpstreamDoesNotAnswer(t *testing.T) {
	nobody := ports.Addrs(t, 1)[0]
	s := newStand(t, nil)
	s.set(1, room.Inside)
	address := serveProxy(t, s, ProxyOptions{}, "http://"+nobody)
	body := expect(t, fetch(t, http.MethodPost, address+"/", "a=1", asPage, pass(1)), http.StatusBadGateway, `data-kind="failed"`, "You are still inside")
	if strings.Contains(body, nobody) || strings.Contains(body, "refused") || strings.Contains(body, english.NotSent) {
		t.Errorf("the page tells too much:\n%s", body)
	}
	expect(t, fetch(t, http.MethodGet, address+"/", "", asProgram, pass(1)), http.StatusBadGateway, `"code":"upstream"`)
	expect(t, fetch(t, http.MethodGet, address+"/a.png", "", asImage, pass(1)), http.StatusBadGateway, "does not answer")

	stop := make(chan struct{})
	s, address = front(t, ProxyOptions{HeaderTimeout: 20 * time.Millisecond}, func(http.ResponseWriter, *http.Request) { <-stop })
	defer close(stop)
	expect(t, fetch(t, http.MethodGet, address+"/", "", asPage, pass(1)), http.StatusGatewayTimeout, `data-kind="failed"`)
	if len(s.left) != 0 {
		t.Error("the visit has ended")
	}
}

func TestProxyOverTLS(t *testing.T) {
	behind := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, r.Host) }))
	behind.Config.ErrorLog = log.New(io.Discard, "", 0) // the failed handshake below is intended
	behind.StartTLS()
	defer behind.Close()
	roots := x509.NewCertPool()
	roots.AddCert(behind.Certificate())
	s := newStand(t, nil)
	s.set(1, room.Inside)
	address := serveProxy(t, s, ProxyOptions{TLS: &tls.Config{RootCAs: roots}}, behind.URL)
	expect(t, fetch(t, http.MethodGet, address+"/", "", pass(1)), http.StatusOK, strings.TrimPrefix(address, "http://"))
	address = serveProxy(t, s, ProxyOptions{}, behind.URL) // of an unknown authority
	expect(t, fetch(t, http.MethodGet, address+"/", "", asPage, pass(1)), http.StatusBadGateway)
}

func TestProxyOptions(t *testing.T) {
	for _, text := range []string{"", "127.0.0.1:3000", "ftp://shop.test", "/path", "http://"} {
		upstream, err := url.Parse(text)
		if err != nil {
			upstream = nil
		}
		if _, err := Proxy(upstream, ProxyOptions{}); err == nil || !strings.Contains(err.Error(), "http://") {
			t.Errorf("%q: %v", text, err)
		}
	}
}
