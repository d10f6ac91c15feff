package gate

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/room"
)

// A browser sends no cookies with the form of another site. A place taken by it would replace the
// visitor's own.
func TestFormsOfOtherSitesTakeNoPlace(t *testing.T) {
	for name, asker := range map[string]asker{"by Sec-Fetch-Site": header("Sec-Fetch-Site", "cross-site"), "by Origin": header("Origin", "https://bank.test")} {
		s := newStand(t, nil)
		s.set(1, room.Waiting)
		response := s.ask(http.MethodPost, "http://shop.test/paid?order=1", "ok=1", asPage, asker)
		expect(t, response, http.StatusSeeOther)
		if got := response.Header.Get("Location"); got != "/paid?order=1" || len(s.entered) != 0 || len(response.Cookies()) != 0 || s.shop.requests != 0 {
			t.Errorf("%s: Location %q, %d entered, cookies %v", name, got, len(s.entered), response.Cookies())
		}
		// With cookies, as from a site of the same domain, the visitor's place is used.
		s.set(1, room.Inside)
		expect(t, s.ask(http.MethodPost, "http://shop.test/paid", "ok=1", asPage, asker, ticket(1)), http.StatusOK, "the shop")
	}
}

// While a gate that fails open is open, forms of other sites are sent on too.
func TestFormsOfOtherSitesWhileTheStoreIsAway(t *testing.T) {
	s := newStand(t, nil)
	s.settings.OnStoreFailure = room.FailOpen
	s.away = room.ErrUnavailable
	expect(t, s.get("http://shop.test/", asPage), http.StatusOK, "the shop")
	expect(t, s.ask(http.MethodPost, "http://shop.test/paid", "ok=1", asPage, header("Sec-Fetch-Site", "cross-site")), http.StatusOK, "the shop")
	if s.shop.last.Method != http.MethodPost {
		t.Errorf("the shop got %s", s.shop.last.Method)
	}
}

// A cookie that another host of the domain has set does not hide the visitor's own.
func TestNamesakes(t *testing.T) {
	s := newStand(t, nil)
	s.set(1, room.Waiting)
	foreign := holding("sluice_ticket_shop", "foreign")
	response := s.get("http://shop.test/", asPage, foreign, ticket(1))
	expect(t, response, http.StatusOK, "You are in line")
	if len(s.entered) != 0 || cookieOf(response, "sluice_ticket_shop") != nil {
		t.Errorf("%d entered, cookies %v", len(s.entered), response.Cookies())
	}
	expect(t, s.get("http://shop.test/.sluice/shop/status", foreign, ticket(1)), http.StatusOK, `"position":1`)
	expect(t, s.get("http://shop.test/.sluice/shop/status", foreign, foreign), http.StatusGone)
	expect(t, s.get("http://shop.test/.sluice/shop/status", foreign, foreign, foreign, foreign, ticket(1)), http.StatusGone)
}

// Methods that do not open pages take no place.
func TestMethodsThatTakeNoPlace(t *testing.T) {
	for method, status := range map[string]int{
		http.MethodOptions: http.StatusServiceUnavailable, http.MethodTrace: http.StatusServiceUnavailable, http.MethodConnect: http.StatusMethodNotAllowed,
	} {
		s := newStand(t, nil)
		s.settings.Routes = []room.Rule{{Path: "/api"}}
		response := s.ask(method, "http://shop.test/api", "", header("Accept", "*/*"), header("Origin", "https://app.test"))
		expect(t, response, status)
		if len(s.entered) != 0 || s.shop.requests != 0 || len(response.Cookies()) != 0 {
			t.Errorf("%s: %d entered", method, len(s.entered))
		}
	}
	// A tunnel has no path, so no route can require a pass for it.
	s := newStand(t, nil)
	s.settings.Routes = []room.Rule{{Path: "/api"}}
	expect(t, s.ask(http.MethodConnect, "shop.internal:22", ""), http.StatusMethodNotAllowed)
	if s.shop.requests != 0 {
		t.Error("the shop was asked for a tunnel")
	}
}

// Browsers apply form-action to the redirects after a form: a shop that redirects a joined visitor
// to another site, for example to log in, would be blocked.
func TestFormsMayBeRedirected(t *testing.T) {
	s := newStand(t, nil)
	s.set(1, room.Waiting)
	if policy := s.get("http://shop.test/", asPage, ticket(1)).Header.Get("Content-Security-Policy"); policy == "" || strings.Contains(policy, "form-action") {
		t.Errorf("policy = %q", policy)
	}
}

// The gate does not wait for a form that arrives byte by byte.
func TestFormsThatDoNotArrive(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newStand(t, nil)
		s.set(1, room.Waiting)
		near, far := net.Pipe()
		server := &http.Server{Handler: s.handler, ReadHeaderTimeout: time.Second}
		listener := &onePipe{conn: far, done: make(chan struct{})}
		go func() { _ = server.Serve(listener) }()
		began := time.Now()
		_, _ = io.WriteString(near, "POST /.sluice/shop/leave HTTP/1.1\r\nHost: shop.test\r\nCookie: sluice_ticket_shop=ticket-1\r\n"+
			"Content-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\n\r\nto=")
		response, err := http.ReadResponse(bufio.NewReader(near), nil)
		if err != nil {
			t.Fatal(err)
		}
		_ = response.Body.Close()
		if took := time.Since(began); took != FormTime || !response.Close || len(s.left) != 1 {
			t.Errorf("after %v: close %v, left %v", took, response.Close, s.left)
		}
		_ = near.Close()
		_ = server.Close()
	})
}

// onePipe is a listener with one connection.
type onePipe struct {
	conn net.Conn
	done chan struct{}
}

func (l *onePipe) Accept() (net.Conn, error) {
	if conn := l.conn; conn != nil {
		l.conn = nil
		return conn, nil
	}
	<-l.done
	return nil, net.ErrClosed
}

func (l *onePipe) Close() error   { close(l.done); return nil }
func (l *onePipe) Addr() net.Addr { return &net.TCPAddr{} }
