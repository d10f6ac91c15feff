package api_test

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk/api"
)

// TestRefusalReachesTheSender: a client that writes its whole body before it
// reads gets the answer, though the body was refused early.
func TestRefusalReachesTheSender(t *testing.T) {
	f := newFixture(t)
	f.create("a")
	server := httptest.NewServer(f.handler)
	defer server.Close()
	for target, status := range map[string]int{"/v1/actions/a/jobs": 413, "/v1/actions/none/jobs": 404, "/v1/nowhere": 404, "/v1/leases": 413} {
		connection, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		_ = connection.SetDeadline(time.Now().Add(20 * time.Second))
		size := api.MaxChunk + 1<<20
		fmt.Fprintf(connection, "POST %s HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\nContent-Length: %d\r\n\r\n", target, size)
		if _, err := io.Copy(connection, strings.NewReader(strings.Repeat("1\n", size/2))); err != nil {
			t.Fatal(target, err)
		}
		response, err := http.ReadResponse(bufio.NewReader(connection), nil)
		if err != nil || response.StatusCode != status {
			t.Fatal(target, response, err)
		}
		_ = connection.Close()
	}
}

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
	_ = connection.SetDeadline(time.Now().Add(20 * time.Second))
	fmt.Fprint(connection, "POST /v1/actions/none/jobs HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Type: application/x-ndjson\r\nContent-Length: 5\r\n\r\n")
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil || response.StatusCode != 404 {
		t.Fatal(response, err)
	}
}
