package api_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"testing"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/api"
	"github.com/sluice-project/sluice/room/engine"
	"github.com/sluice-project/sluice/room/storetest"
)

// bare sends an answer of the size of a place, and does nothing else: the cost of net/http itself.
func bare(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(bareBody)
}

var bareBody = bytes.Repeat([]byte("x"), 230)

// drive sends requests over persistent connections, and reads as little of the answers as possible.
func drive(b *testing.B, handler http.Handler, request string, status int) {
	server := httptest.NewServer(handler)
	defer server.Close()
	start := fmt.Appendf(nil, "HTTP/1.1 %d", status)
	b.ReportAllocs()
	b.SetParallelism(16)
	b.RunParallel(func(pb *testing.PB) {
		conn, err := net.Dial("tcp", server.Listener.Addr().String())
		if err != nil {
			b.Error(err)
			return
		}
		defer conn.Close()
		in := bufio.NewReader(conn)
		for pb.Next() {
			if _, err := io.WriteString(conn, request); err != nil {
				b.Error(err)
				return
			}
			line, length := []byte(nil), 0
			for first := true; first || len(line) > 2; first = false {
				if line, err = in.ReadSlice('\n'); err != nil || first && !bytes.HasPrefix(line, start) {
					b.Errorf("%q, %v", line, err)
					return
				}
				if value, ok := bytes.CutPrefix(line, []byte("Content-Length: ")); ok {
					length, _ = strconv.Atoi(string(bytes.TrimSpace(value)))
				}
			}
			if n, err := in.Discard(length); n != length || length == 0 {
				b.Error(n, err)
				return
			}
		}
	})
}

const (
	enterRequest = "POST /v1/rooms/shop/visitors HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n"
	keyRequest   = "POST /v1/rooms/shop/visitors HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: 17\r\n\r\n{\"visitor\":\"ada\"}"
	meRequest    = "GET /v1/rooms/shop/visitors/me HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer %s\r\n\r\n"
)

// silent is an engine that records nothing.
type silent struct{ *fake }

func (s silent) Enter(context.Context, string, room.Visit) (engine.Answer, error) {
	return s.answer, nil
}

// BenchmarkEdge measures the edge compared with a bare handler, over loopback and with the client
// in the same process.
func BenchmarkEdge(b *testing.B) {
	e := newFake()
	e.onAsk = func(int) (engine.Answer, error) { return e.answer, nil }
	handler := api.New(silent{e}, nil)
	b.Run("bare", func(b *testing.B) { drive(b, http.HandlerFunc(bare), fmt.Sprintf(meRequest, "t"), 200) })
	b.Run("enter", func(b *testing.B) { drive(b, handler, enterRequest, 200) })
	b.Run("enter with key", func(b *testing.B) { drive(b, handler, keyRequest, 200) })
	b.Run("me", func(b *testing.B) { drive(b, handler, fmt.Sprintf(meRequest, "t"), 200) })
}

// BenchmarkService measures the same with the engine, and a store in memory.
func BenchmarkService(b *testing.B) {
	e, err := engine.New(storetest.NewMemory(), room.Config{})
	if err != nil {
		b.Fatal(err)
	}
	if err := e.Start(b.Context()); err != nil {
		b.Fatal(err)
	}
	defer func() {
		if err := e.Stop(context.Background()); err != nil {
			b.Error(err)
		}
	}()
	settings := room.Settings{Mode: room.Teller, Capacity: 1, MaxWaiting: 10_000_000}
	if _, _, err := e.PutRoom(b.Context(), "shop", settings); err != nil {
		b.Fatal(err)
	}
	var answer engine.Answer
	for range 2 {
		if answer, err = e.Enter(b.Context(), "shop", room.Visit{}); err != nil {
			b.Fatal(err)
		}
	}
	handler := api.New(e, nil)
	b.Run("bare", func(b *testing.B) { drive(b, http.HandlerFunc(bare), fmt.Sprintf(meRequest, "t"), 200) })
	b.Run("me", func(b *testing.B) { drive(b, handler, fmt.Sprintf(meRequest, answer.Ticket), 200) })
}
