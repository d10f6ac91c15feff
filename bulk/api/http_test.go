package api_test

import (
	"bufio"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// TestExpectContinue: a client that asks first is refused without its body.
func TestExpectContinue(t *testing.T) {
	f := newFixture(t)
	server := httptest.NewServer(f.handler)
	defer server.Close()
	connection, err := net.Dial("tcp", server.Listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	_ = connection.SetDeadline(time.Now().Add(until.Limit))
	_, _ = io.WriteString(connection, "POST /v1/actions/none/jobs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/x-ndjson\r\nContent-Length: 5\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil || response.StatusCode != http.StatusNotFound {
		t.Fatal(response, err)
	}
	_ = response.Body.Close()
}

// TestPagesOfOthers: a page anywhere can have a browser send a request without body to
// a server that the browser reaches; it changes nothing.
func TestPagesOfOthers(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	send := func(origin string) int {
		request := httptest.NewRequest(http.MethodPost, "http://127.0.0.1:8080/v1/actions/a/pause", http.NoBody)
		request.Header.Set("Origin", origin)
		recorder := httptest.NewRecorder()
		f.handler.ServeHTTP(recorder, request)
		return recorder.Code
	}
	if status := send("https://elsewhere.example"); status != http.StatusForbidden {
		t.Errorf("a page of another origin: %d, want 403", status)
	}
	if status := send("http://127.0.0.1:8080"); status != http.StatusOK {
		t.Errorf("a page of its own: %d, want 200", status)
	}
}
