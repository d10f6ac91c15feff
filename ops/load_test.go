package ops_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/ops"
)

type bodyIn struct{ Body struct{} }

type nothing struct{}

// loaded is a server whose operations, of new work and of accepted work, wait until they are let go.
type loaded struct {
	*ops.Server
	began atomic.Int64
	letGo func()
}

func startLoaded(t *testing.T, bodyMemory int64) *loaded {
	t.Helper()
	l := &loaded{Server: ops.NewServer(ops.Options{Addr: "127.0.0.1:0", Load: ops.NewLoad(bodyMemory)})}
	release := make(chan struct{})
	l.letGo = sync.OnceFunc(func() { close(release) })
	part := l.API().Part("test", edge.PartOptions{Refuse: func(error) *edge.Error { return nil }, MaxBody: 4 << 20})
	for id, route := range map[string]string{"enqueue-job": "POST /v1/jobs", "extend-leases": "POST /v1/leases/extend", "list-actions": "GET /v1/actions"} {
		run := func(e *edge.Exchange) error {
			if id != "extend-leases" {
				l.began.Add(1)
				<-release
			}
			return e.NoContent(nil)
		}
		if id == "list-actions" {
			edge.Handle[nothing, nothing](part, edge.Operation{ID: id, Route: route}, run)
		} else {
			edge.Handle[bodyIn, nothing](part, edge.Operation{ID: id, Route: route}, run)
		}
	}
	if err := l.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		l.letGo()
		_ = l.Stop(context.WithoutCancel(t.Context()))
	})
	return l
}

// send sends a request whose announced body follows only as far as it is given, and returns what answers it.
func (l *loaded) send(t *testing.T, request, body string, length int) *bufio.Reader {
	t.Helper()
	conn, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	go func() {
		_, _ = fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%s", request, length, body)
	}()
	return bufio.NewReader(conn)
}

// status reads an answer, and checks that refusals say when to come again.
func status(t *testing.T, from *bufio.Reader) int {
	t.Helper()
	answer, err := http.ReadResponse(from, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer answer.Body.Close()
	text, _ := io.ReadAll(answer.Body)
	if answer.StatusCode == http.StatusServiceUnavailable && (answer.Header.Get("Retry-After") == "" || !strings.Contains(string(text), `"busy"`)) {
		t.Errorf("the refusal %s has Retry-After %q", text, answer.Header.Get("Retry-After"))
	}
	return answer.StatusCode
}

// When as many requests of new work are in progress as may be, further ones are refused although their bodies have not
// been sent, those of accepted work are served, and new work is accepted again when the others have ended. The same is
// true of requests that read.
func TestRequestsInProgressAreBounded(t *testing.T) {
	t.Parallel()
	for request, perProcessor := range map[string]int{"POST /v1/jobs": 64, "GET /v1/actions": 4} {
		l := startLoaded(t, 1<<30)
		most := perProcessor * runtime.GOMAXPROCS(0)
		body := ""
		if strings.HasPrefix(request, "POST") {
			body = "{}"
		}
		var all []*bufio.Reader
		for range most {
			all = append(all, l.send(t, request, body, len(body)))
		}
		until.True(t, "all are in progress", func() bool { return l.began.Load() == int64(most) })
		for range 3 {
			if got := status(t, l.send(t, request, "", len(body))); got != http.StatusServiceUnavailable {
				t.Errorf("one more of %s is answered %d, want 503", request, got)
			}
			if got := status(t, l.send(t, "POST /v1/leases/extend", "{}", 2)); got != http.StatusNoContent {
				t.Errorf("beside %s, accepted work is answered %d, want 204", request, got)
			}
		}
		if l.began.Load() != int64(most) {
			t.Errorf("%d requests of %s have begun, want %d", l.began.Load(), request, most)
		}
		l.letGo()
		for _, answer := range all {
			if got := status(t, answer); got != http.StatusNoContent {
				t.Errorf("one that was in progress is answered %d, want 204", got)
			}
		}
		if got := status(t, l.send(t, request, body, len(body))); got != http.StatusNoContent {
			t.Errorf("after them, %s is answered %d, want 204", request, got)
		}
	}
}

// Clients that send no body take no turn of others: these are served before the server gives the silent ones up.
func TestBodiesThatAreAwaitedTakeNoTurn(t *testing.T) {
	t.Parallel()
	l := startLoaded(t, 1<<30)
	l.letGo()
	until.True(t, "others are served beside silent clients", func() bool {
		var ended atomic.Int64
		for range 2 * 64 * runtime.GOMAXPROCS(0) {
			silent := l.send(t, "POST /v1/jobs", "", 1000)
			go func() {
				_, _ = silent.ReadByte()
				ended.Add(1)
			}()
		}
		for range 20 {
			if status(t, l.send(t, "POST /v1/jobs", "{}", 2)) != http.StatusNoContent || ended.Load() > 0 {
				return false
			}
		}
		return true
	})
}

// Parts have turns of their own: where one answers nothing, others do.
func TestAPartThatHangsDelaysNoOther(t *testing.T) {
	t.Parallel()
	l := startLoaded(t, 1<<30)
	edge.Handle[nothing, nothing](l.API().Part("other", edge.PartOptions{}), edge.Operation{ID: "list-rooms", Route: "GET /v1/rooms"},
		func(e *edge.Exchange) error { return e.NoContent(nil) })
	turns := int64(4 * runtime.GOMAXPROCS(0))
	for range 2 * turns {
		l.send(t, "GET /v1/actions", "", 0)
	}
	until.True(t, "all turns of the part are taken", func() bool { return l.began.Load() == turns })
	if got := status(t, l.send(t, "GET /v1/rooms", "", 0)); got != http.StatusNoContent {
		t.Errorf("another part answers %d, want 204", got)
	}
}

// Long bodies have a budget: one that does not fit is refused before it is read, and short ones pass.
func TestMemoryOfLongBodiesIsBounded(t *testing.T) {
	t.Parallel()
	l := startLoaded(t, 16<<20)
	long := `{"a":"` + strings.Repeat("x", 2<<20) + `"}`
	var all []*bufio.Reader
	for range 2 { // each counts four times
		if all = append(all, l.send(t, "POST /v1/jobs", long, len(long))); len(all) == 1 {
			until.True(t, "the first has begun", func() bool { return l.began.Load() == 1 })
		}
	}
	if got := status(t, all[1]); got != http.StatusServiceUnavailable {
		t.Errorf("a second long body is answered %d, want 503", got)
	}
	short := l.send(t, "POST /v1/jobs", "{}", 2)
	until.True(t, "a short one has begun", func() bool { return l.began.Load() == 2 })
	l.letGo()
	if got := status(t, short); got != http.StatusNoContent {
		t.Errorf("the short one is answered %d, want 204", got)
	}
	if got := status(t, all[0]); got != http.StatusNoContent {
		t.Errorf("the first is answered %d, want 204", got)
	}
	if got := status(t, l.send(t, "POST /v1/jobs", long, len(long))); got != http.StatusNoContent {
		t.Errorf("a long one after them is answered %d, want 204", got)
	}
}
