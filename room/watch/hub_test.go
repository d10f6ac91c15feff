package watch

import (
	"bufio"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// serve serves streams of /{number} over one of the transports.
func serve(t *testing.T, h *Hub, transport string) *httptest.Server {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		number, err := strconv.ParseInt(strings.TrimPrefix(r.URL.Path, "/"), 10, 64)
		if err != nil {
			t.Error(err)
		}
		w.Header().Set("X-Kept", "yes")
		err = h.Serve(w, r, Stream{Room: roomOf(number), Ticket: engine.Ticket{Number: number}, Claim: r.URL.Query().Has("claim"), Format: format})
		if err != nil {
			http.Error(w, err.Error(), http.StatusGone)
		}
	}))
	switch transport {
	case "HTTP/1.1":
		server.Start()
	case "HTTP/1.1 with TLS":
		server.StartTLS()
	case "HTTP/2":
		server.EnableHTTP2 = true
		server.StartTLS()
	}
	t.Cleanup(server.Close)
	return server
}

var transports = []string{"HTTP/1.1", "HTTP/1.1 with TLS", "HTTP/2"}

func format(b []byte, a *engine.Answer) []byte {
	return fmt.Appendf(b, "%d %d at %d%s", a.ID, a.State, a.Position, a.Pass)
}

// reader reads a stream as a client does.
type reader struct {
	t    *testing.T
	body io.ReadCloser
	in   *bufio.Reader
}

func open(t *testing.T, server *httptest.Server, path string) *reader {
	t.Helper()
	client := server.Client()
	response, err := client.Get(server.URL + path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { response.Body.Close() })
	header := response.Header
	if response.StatusCode != http.StatusOK || header.Get("Content-Type") != "text/event-stream" || header.Get("Cache-Control") != "no-store" ||
		header.Get("X-Kept") != "yes" || header.Get("X-Accel-Buffering") != "no" || header.Get("Date") == "" {
		t.Fatal(response.Status, header)
	}
	r := &reader{t, response.Body, bufio.NewReader(response.Body)}
	retry, _ := strings.CutPrefix(r.block(), "retry: ")
	if ms, err := strconv.Atoi(retry); err != nil || ms < 2000 || ms >= 5000 {
		t.Fatalf("the stream begins with retry %q, %v", retry, err)
	}
	return r
}

// block reads up to the next empty line; "" at the end of the stream. It passes over comments, which
// a machine that is slow for 15 seconds gets too.
func (r *reader) block() string {
	r.t.Helper()
	var lines []string
	for {
		line, err := r.in.ReadString('\n')
		if errors.Is(err, io.EOF) && line == "" && lines == nil {
			return ""
		}
		if err != nil {
			r.t.Fatalf("%v after %q", err, lines)
		}
		if line == "\n" && lines == nil || line == ":\n" {
			continue
		}
		if line == "\n" {
			return strings.Join(lines, "\n")
		}
		lines = append(lines, strings.TrimSuffix(line, "\n"))
	}
}

func (r *reader) want(block string) {
	r.t.Helper()
	if got := r.block(); got != block {
		r.t.Fatalf("got  %q\nwant %q", got, block)
	}
}

func TestStream(t *testing.T) {
	for _, transport := range transports {
		t.Run(transport, func(t *testing.T) {
			t.Parallel()
			e := newFake()
			h := start(t, e)
			server := serve(t, h, transport)
			e.set(7, waiting(9))
			r := open(t, server, "/7?claim")
			r.want("id: 1\ndata: 7 1 at 9")
			asked := e.count(7)
			until.True(t, "asked again", func() bool { return e.count(7) >= asked+2 })
			e.set(7, waiting(3)) // An unchanged place is not sent.
			r.want("id: 2\ndata: 7 1 at 3")
			e.set(7, engine.Result{Err: room.ErrUnavailable})
			asked = e.count(7)
			until.True(t, "asked while away", func() bool { return e.count(7) > asked })
			e.set(7, engine.Result{Answer: engine.Answer{State: room.Inside, NextPoll: 50 * time.Millisecond, Pass: " with pass"}})
			r.want("id: 3\ndata: 7 3 at 0 with pass")
			r.want("id: 4\ndata: 7 3 at 0 with pass") // renewed
			e.set(7, engine.Result{Err: &room.GoneError{Reason: room.Expired, ID: 7}})
			last := r.block()
			for strings.HasSuffix(last, "pass") {
				last = r.block()
			}
			if last != "event: gone\ndata: {\"reason\":\"expired\"}" {
				t.Errorf("last event %q", last)
			}
			r.want("")
			until.True(t, "closed", func() bool { return h.Streams() == 0 })
			if e.claimed[7] != e.asked[7] {
				t.Errorf("asked %d times, with claim %d times", e.asked[7], e.claimed[7])
			}
		})
	}
}

func TestNoClaim(t *testing.T) {
	e := newFake()
	h := start(t, e)
	e.set(4, engine.Result{Answer: engine.Answer{State: room.Called, Position: 1, NextPoll: time.Second}})
	r := open(t, serve(t, h, "HTTP/1.1"), "/4")
	r.want("id: 1\ndata: 4 2 at 1")
	if e.claimed[4] != 0 {
		t.Error("the stream claimed")
	}
}

func TestRoomRemoved(t *testing.T) {
	e := newFake()
	e.set(4, waiting(1))
	h := start(t, e)
	r := open(t, serve(t, h, "HTTP/1.1"), "/4")
	r.want("id: 1\ndata: 4 1 at 1")
	e.set(4, engine.Result{Err: fmt.Errorf("shop: %w", room.ErrNoRoom)})
	r.want("event: gone\ndata: {\"reason\":\"removed\"}")
	r.want("")
}

// A disconnected client is not polled any more.
func TestClientGone(t *testing.T) {
	for _, transport := range transports {
		engine := newFake()
		engine.set(4, waiting(1))
		h := start(t, engine)
		r := open(t, serve(t, h, transport), "/4")
		r.want("id: 1\ndata: 4 1 at 1")
		if h.Streams() != 1 {
			t.Errorf("%s: %d streams", transport, h.Streams())
		}
		if err := r.body.Close(); err != nil {
			t.Error(err)
		}
		until.True(t, transport+" noticed", func() bool { return h.Streams() == 0 })
	}
}

func TestFirstAnswer(t *testing.T) {
	e := newFake()
	h := start(t, e)
	for _, err := range []error{&room.GoneError{Reason: room.Left}, room.ErrNoRoom, engine.ErrBadTicket} {
		e.set(2, engine.Result{Err: err})
		w := httptest.NewRecorder()
		got := h.Serve(w, httptest.NewRequest(http.MethodGet, "/", nil), Stream{Room: "shop", Ticket: engine.Ticket{Number: 2}})
		if !errors.Is(got, err) || w.Body.Len() > 0 || len(w.Header()) > 0 || h.Streams() != 0 {
			t.Errorf("%v: %v, wrote %q", err, got, w.Body)
		}
	}
	w := httptest.NewRecorder()
	if err := h.Serve(w, httptest.NewRequest(http.MethodHead, "/", nil), Stream{Room: "shop", Ticket: engine.Ticket{Number: 4}}); err != nil || w.Header().Get("Content-Type") != "text/event-stream" || h.Streams() != 0 {
		t.Error("HEAD:", err, w.Header(), h.Streams())
	}
	e.set(2, engine.Result{Err: room.ErrUnavailable})
	r := open(t, serve(t, h, "HTTP/1.1"), "/2")
	e.set(2, waiting(5))
	r.want("id: 1\ndata: 2 1 at 5") // The stream waited for the store.
}

func TestMostStreams(t *testing.T) {
	engine := newFake()
	h := start(t, engine, WithMaxStreams(2))
	server := serve(t, h, "HTTP/1.1")
	first := open(t, server, "/2")
	open(t, server, "/4")
	try := func() error {
		return h.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodHead, "/", nil), Stream{Room: "shop"})
	}
	if err := try(); !errors.Is(err, ErrTooMany) {
		t.Errorf("the third: %v", err)
	}
	first.body.Close()
	until.True(t, "one is free", func() bool { return try() == nil })
}

// A client that keeps opening streams gets only some, and others get theirs.
func TestMostStreamsOfOnePlace(t *testing.T) {
	server := serve(t, start(t, newFake()), "HTTP/1.1")
	for range MaxPerPlace {
		open(t, server, "/2")
	}
	response, err := server.Client().Get(server.URL + "/2")
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	if text, _ := io.ReadAll(response.Body); string(text) != ErrTooMany.Error()+"\n" {
		t.Errorf("one more: %s %s", response.Status, text)
	}
	open(t, server, "/4")
}

func TestStopEndsStreams(t *testing.T) {
	for _, transport := range transports {
		h := New(newFake())
		if err := h.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := open(t, serve(t, h, transport), "/2")
		r.want("id: 1\ndata: 2 1 at 500")
		for range 2 {
			if err := h.Stop(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		r.want("") // A clean end, not a cut.
		if err := h.Serve(httptest.NewRecorder(), httptest.NewRequest(http.MethodGet, "/", nil), Stream{}); !errors.Is(err, ErrClosed) || h.Streams() != 0 {
			t.Errorf("%s: after Stop: %v, %d streams", transport, err, h.Streams())
		}
	}
}

// HTTP/1.0 has no chunks.
func TestOldClient(t *testing.T) {
	e := newFake()
	e.set(2, waiting(5))
	server := serve(t, start(t, e), "HTTP/1.1")
	conn, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if _, err := io.WriteString(conn, "GET /2 HTTP/1.0\r\n\r\n"); err != nil {
		t.Fatal(err)
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil || len(response.TransferEncoding) > 0 || !response.Close {
		t.Fatal(response, err)
	}
	defer response.Body.Close()
	r := &reader{t, response.Body, bufio.NewReader(response.Body)}
	r.block()
	r.want("id: 1\ndata: 2 1 at 5")
	e.set(2, engine.Result{Err: room.ErrNoRoom})
	r.want("event: gone\ndata: {\"reason\":\"removed\"}")
	r.want("")
}

func TestTransportsAreWhatTheySay(t *testing.T) {
	for transport, want := range map[string]string{"HTTP/1.1": "HTTP/1.1", "HTTP/1.1 with TLS": "HTTP/1.1", "HTTP/2": "HTTP/2.0"} {
		server := serve(t, start(t, newFake()), transport)
		response, err := server.Client().Get(server.URL + "/2")
		if err != nil {
			t.Fatal(err)
		}
		if response.Proto != want || (response.TLS != (*tls.ConnectionState)(nil)) != (transport != "HTTP/1.1") {
			t.Errorf("%s is %s", transport, response.Proto)
		}
		response.Body.Close()
	}
}
