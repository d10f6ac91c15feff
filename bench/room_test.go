package bench

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"
)

// newHall returns a running Hall with the given number of waiting visitors.
func newHall(t *testing.T, waiting int) *Hall {
	t.Helper()
	h, err := environment.OpenHall(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	filled, err := h.FillTo(t.Context(), waiting)
	if err != nil || len(filled) != 2 || filled[0].Records != waiting+roomInside {
		t.Fatalf("filled %+v: %v", filled, err)
	}
	return h
}

func namesOf(all []Served) string {
	var names []string
	for _, served := range all {
		names = append(names, served.Name)
	}
	return strings.Join(names, "; ")
}

func TestHall(t *testing.T) {
	h := newHall(t, 500)
	if err := h.OpenFloors(t.Context()); err != nil {
		t.Fatal(err)
	}
	asked, err := h.Positions(t.Context(), 10, 200*time.Millisecond)
	const everybody = "sluice, embedded; sluice, Redis; floor, embedded; floor, Redis; bare net/http handler; PostgreSQL table"
	if err != nil || namesOf(asked) != everybody {
		t.Fatalf("positions of %s: %v", namesOf(asked), err)
	}
	joined, err := h.Joins(t.Context(), 10, 200*time.Millisecond)
	if err != nil || namesOf(joined) != everybody {
		t.Fatalf("joins of %s: %v", namesOf(joined), err)
	}
	for _, room := range h.rooms {
		if got := room.entered - room.crowd.len(); got != roomInside {
			t.Errorf("%s: %d visitors do not wait, want the %d inside", room.name, got, roomInside)
		}
	}
	for _, joins := range []bool{true, false} {
		calm := joined
		atLowerRates(t, 400, func(rate float64) error {
			for i := range calm {
				calm[i].Rate = rate
			}
			half, err := h.AtHalf(t.Context(), calm, joins, 500*time.Millisecond)
			if err == nil && (len(half) != 5 || float64(half[0].Records) < keptUp*rate/4 || float64(half[0].Records) > rate/4+1) {
				t.Errorf("at half of %.0f/s for 0.5 s: %+v", rate, half)
			}
			return err
		})
	}
	m, err := h.Memory(t.Context())
	if err != nil || min(m.Embedded, m.Process, m.Redis, m.RedisResident) < 100<<10 {
		t.Errorf("memory %+v, %v", m, err)
	}
}

// The table's positions are those of the queue, also of later visitors.
func TestTokenTable(t *testing.T) {
	table, err := environment.startTokens(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := table.stop(); err != nil {
			t.Error(err)
		}
	})
	for _, waiting := range []int{10, 1000} {
		if err := table.fillTo(t.Context(), waiting); err != nil {
			t.Fatal(err)
		}
		if l, err := table.run(t.Context(), 3, 100*time.Millisecond, table.position); err != nil || l.Records < 3 {
			t.Errorf("%d waiting: %+v, %v", waiting, l, err)
		}
	}
	if _, err := table.pool.Exec(t.Context(), "UPDATE token SET status = 'DONE' WHERE id = 1"); err != nil {
		t.Fatal(err)
	}
	if _, err := table.run(t.Context(), 1, 100*time.Millisecond, table.position); err == nil || !strings.Contains(err.Error(), "has the position") {
		t.Errorf("error %v, want one of a wrong position", err)
	}
}

func loadOf(server *httptest.Server) load {
	return load{address: server.Listener.Addr().String(), connections: 4, request: enterRequest}
}

// A load sends the wanted number of requests, and receives each answer once.
func TestLoad(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.Header().Set("Content-Length", "10005")
		_, _ = fmt.Fprintf(w, "%s %s", r.Method, strings.Repeat("x", 10_000)) // needs more than one read
	}))
	defer server.Close()
	for _, perSecond := range []float64{0, 1000} {
		l, seen := loadOf(server), map[int]int{}
		l.most, l.perSecond = 100, perSecond
		l.answer = func(n int, body []byte) error {
			seen[n]++
			if len(body) != len("POST ")+10_000 {
				return fmt.Errorf("%d bytes", len(body))
			}
			return nil
		}
		got, err := l.run(t.Context())
		if err != nil || got.Records != 100 || len(seen) != 100 {
			t.Errorf("at %v/s: %+v, %d seen: %v", perSecond, got, len(seen), err)
		}
	}
}

// A refused or late answer is an error.
func TestALoadThatFails(t *testing.T) {
	tests := []struct {
		name, want string
		handler    http.HandlerFunc
	}{
		{"refused", "status 503: no", func(w http.ResponseWriter, _ *http.Request) {
			w.WriteHeader(http.StatusServiceUnavailable)
			_, _ = fmt.Fprint(w, "no")
		}},
		{"slow", "cannot keep up", func(http.ResponseWriter, *http.Request) { <-time.After(100 * time.Millisecond) }},
		{"closed", "closed a connection", func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) }},
	}
	for _, test := range tests {
		server := httptest.NewServer(test.handler)
		l := loadOf(server)
		l.perSecond, l.during = 1000, 300*time.Millisecond
		if _, err := l.run(t.Context()); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q in it", test.name, err, test.want)
		}
		server.Close()
	}
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {}))
	defer server.Close()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := loadOf(server).run(ctx); err == nil {
		t.Error("a load ran whose context has ended")
	}
}

func TestReadAnswer(t *testing.T) {
	const head = "HTTP/1.1 200 OK\r\nContent-Length: 3\r\nDate: x\r\n\r\n"
	tests := []struct {
		in, body, err string
		whole         bool
	}{
		{head + "abc", "abc", "", true},
		{head + "ab", "", "", false},
		{head[:20], "", "", false},
		{"HTTP/1.1 204 No Content\r\n\r\n", "", "", true},
		{head + "abcd", "", "1 bytes follow", false},
		{"HTTP/1.1 200 OK\r\n\r\n", "", "has no length", false},
		{"HTTP/1.1 200 OK\r\nContent-Length: x\r\n\r\n", "", `the length "x"`, false},
		{"HTTP\r\n\r\n", "", "begins with", false},
		{strings.Replace(head, "200", "410", 1) + "abc", "", "status 410: abc", false},
	}
	for _, test := range tests {
		body, whole, err := readAnswer([]byte(test.in))
		switch {
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%q: error %v, want %q in it", test.in, err, test.err)
		case test.err == "" && (err != nil || whole != test.whole || string(body) != test.body):
			t.Errorf("%q: %q, %v, %v", test.in, body, whole, err)
		}
	}
}

// A floor knows its own tickets, and no others.
func TestFloorTicket(t *testing.T) {
	ticket := signTicket(7)
	if number, err := readTicket(ticket); err != nil || number != 7 {
		t.Errorf("visitor %d: %v", number, err)
	}
	for _, other := range []string{"", ticket[:len(ticket)-1], "A" + ticket[1:len(ticket)-1] + "A"} {
		if number, err := readTicket(other); err == nil {
			t.Errorf("the ticket %q is that of visitor %d", other, number)
		}
	}
}

func TestCrowd(t *testing.T) {
	var c crowd
	for _, body := range []string{
		`{"ticket":"one","id":1,"status":"waiting"}`, `{"ticket":"two","id":2,"status":"inside"}`, `{"ticket":"three","id":3,"status":"waiting"}`,
	} {
		if err := c.add([]byte(body)); err != nil {
			t.Fatal(err)
		}
	}
	if c.len() != 2 || string(c.ticket(0)) != "one" || string(c.ticket(1)) != "three" {
		t.Errorf("has %q", c.text)
	}
	if err := c.add([]byte("{}")); err == nil {
		t.Error("an answer without a ticket was taken")
	}
}

func TestStreams(t *testing.T) {
	t.Parallel()
	open, err := environment.Streams(t.Context(), []int{5, 20})
	if err != nil || len(open) != 2 || open[1].Open != 20 || open[1].Resident < 1<<20 {
		t.Errorf("open %+v: %v", open, err)
	}
}
