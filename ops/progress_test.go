package ops

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// dialInMemory starts a server with one handler in the bubble of the test, and connects.
func dialInMemory(t *testing.T, handler http.HandlerFunc) net.Conn {
	t.Helper()
	s := NewFront(Options{Logger: quiet()}, handler)
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	s.listen = func(context.Context, string, string) (net.Listener, error) { return p, nil }
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	conn, err := p.dial(t.Context(), "", "")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = conn.Close()
		if err := s.Stop(context.WithoutCancel(t.Context())); err != nil {
			t.Errorf("Stop: %v", err)
		}
	})
	return conn
}

func send(t *testing.T, conn net.Conn, text string) {
	t.Helper()
	if _, err := io.WriteString(conn, text); err != nil {
		t.Fatal(err)
	}
}

// readBody answers with what it has read, or that it was too slow.
func readBody(w http.ResponseWriter, r *http.Request) {
	text, err := io.ReadAll(r.Body)
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		w.WriteHeader(http.StatusRequestTimeout)
	case err != nil:
		w.WriteHeader(http.StatusBadRequest)
	default:
		_, _ = w.Write(text)
	}
}

// A client that announces a body and sends nothing gets the answer of a handler that
// does not want it at once, and loses the connection; the handler that does want it
// waits for a bounded time.
func TestBodyThatIsNotSent(t *testing.T) {
	for name, test := range map[string]struct {
		handler http.HandlerFunc
		status  int
		after   time.Duration
	}{
		"not wanted":          {func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }, http.StatusOK, 0},
		"not wanted nor told": {func(http.ResponseWriter, *http.Request) {}, http.StatusOK, 0},
		"wanted":              {readBody, http.StatusRequestTimeout, bodyGrace},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := dialInMemory(t, test.handler)
				send(t, conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
				began := time.Now()
				reader := bufio.NewReader(conn)
				response, err := http.ReadResponse(reader, nil)
				if err != nil {
					t.Fatal(err)
				}
				_ = response.Body.Close()
				if took := time.Since(began); response.StatusCode != test.status || took != test.after {
					t.Errorf("status %d after %v, want %d after %v", response.StatusCode, took, test.status, test.after)
				}
				if _, err := io.Copy(io.Discard, reader); err != nil {
					t.Error(err)
				}
				if took, most := time.Since(began), test.after+restTime+time.Second; took > most {
					t.Errorf("the connection is held for %v, want at most %v", took, most)
				}
			})
		})
	}
}

// A client that sends its whole body before it reads gets the answer, though the handler
// has refused the body early.
func TestRefusalReachesTheSender(t *testing.T) {
	url := start(t, NewFront(Options{Addr: "127.0.0.1:0", Logger: quiet()}, http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		http.Error(w, "too large", http.StatusRequestEntityTooLarge)
	})))
	// More than the connection's buffers hold; the last is of unknown length.
	for _, size := range []int64{100 << 10, 9 << 20, -1} {
		body := io.Reader(strings.NewReader(strings.Repeat("x", 9<<20)))
		if size >= 0 {
			body = io.LimitReader(body, size)
		}
		conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, body)
		if err != nil {
			t.Fatal(err)
		}
		request.ContentLength = size
		if err := request.Write(conn); err != nil {
			t.Errorf("%d bytes: %v", size, err)
			continue
		}
		response, err := http.ReadResponse(bufio.NewReader(conn), request)
		if err != nil {
			t.Errorf("%d bytes: %v", size, err)
			continue
		}
		if response.StatusCode != http.StatusRequestEntityTooLarge {
			t.Errorf("%d bytes: status %d", size, response.StatusCode)
		}
		_ = response.Body.Close()
	}
}

// A slow body arrives as long as it has at least the least rate.
func TestSlowBody(t *testing.T) {
	for name, test := range map[string]struct {
		piece  int
		status int
	}{"at the least rate": {bodyRate, http.StatusOK}, "slower": {bodyRate / 2, http.StatusRequestTimeout}} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				conn := dialInMemory(t, readBody)
				const seconds = 100
				send(t, conn, "POST / HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n")
				answered := make(chan int, 1)
				go func() {
					response, err := http.ReadResponse(bufio.NewReader(conn), nil)
					if err != nil {
						answered <- 0
						return
					}
					answered <- response.StatusCode
					_ = response.Body.Close()
				}()
				for range seconds {
					time.Sleep(time.Second)
					if _, err := fmt.Fprintf(conn, "%x\r\n%s\r\n", test.piece, strings.Repeat("x", test.piece)); err != nil {
						break
					}
				}
				_, _ = io.WriteString(conn, "0\r\n\r\n") // the connection of the slower one has ended
				if status := <-answered; status != test.status {
					t.Errorf("status %d, want %d", status, test.status)
				}
			})
		})
	}
}

// A client that does not read its answer loses the connection. One that reads slowly, or
// whose answer takes long, does not.
func TestAnswerThatIsNotRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		conn := dialInMemory(t, func(w http.ResponseWriter, _ *http.Request) {
			var err error
			for err == nil {
				_, err = w.Write(make([]byte, pieceSize))
			}
			ended <- err
		})
		began := time.Now()
		send(t, conn, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")
		buffer := make([]byte, pieceSize)
		for range 10 {
			time.Sleep(pieceTime / 2)
			if _, err := io.ReadFull(conn, buffer); err != nil {
				t.Fatal(err)
			}
		}
		slow := time.Since(began)
		if err := <-ended; err == nil {
			t.Error("the writes succeed")
		}
		if silent := time.Since(began) - slow; silent > pieceTime {
			t.Errorf("the server wrote for %v to a client that did not read, want %v", silent, pieceTime)
		}
	})
}

// An answer may take any time, and a connection then serves the next request.
func TestLongAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		conn := dialInMemory(t, func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			for range 3 {
				_, _ = io.WriteString(w, "part ")
				_ = http.NewResponseController(w).Flush()
				time.Sleep(time.Hour)
			}
		})
		reader := bufio.NewReader(conn)
		for range 2 {
			send(t, conn, "POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody")
			response, err := http.ReadResponse(reader, nil)
			if err != nil {
				t.Fatal(err)
			}
			text, err := io.ReadAll(response.Body)
			_ = response.Body.Close()
			if err != nil || string(text) != "part part part " {
				t.Fatalf("%q, %v", text, err)
			}
		}
	})
}
