package webhook

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/ports"
)

func TestUnreachable(t *testing.T) {
	host := ports.Addrs(t, 1)[0]
	h := newHandler(t, Options{})
	_, err := h.Handle(t.Context(), jobTo("http://user:pass@"+host+"/?key=pass"))
	if got, _ := kindOf(err); got != transientKind {
		t.Fatalf("%v is %s", err, got)
	}
	text := err.Error()
	if !strings.HasPrefix(text, "target "+host+": ") || !strings.Contains(text, "connection refused") ||
		strings.ContainsAny(text, "\r\n") || strings.Contains(text, "pass") {
		t.Fatalf("text = %q", text)
	}
}

// TestContextEndsTheAttempt checks that an attempt ends with its context if the target is
// silent, before or within its answer.
func TestContextEndsTheAttempt(t *testing.T) {
	for name, status := range map[string]int{"no answer": 0, "half an answer": 200} {
		t.Run(name, func(t *testing.T) {
			reached, stop := make(chan struct{}), make(chan struct{})
			server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
				if status != 0 {
					w.WriteHeader(status)
					_, _ = io.WriteString(w, "{")
					_ = http.NewResponseController(w).Flush()
				}
				close(reached)
				<-stop
			})
			defer close(stop)
			ctx, cancel := context.WithCancel(t.Context())
			go func() {
				<-reached
				cancel()
			}()
			_, err := newHandler(t, Options{}).Handle(ctx, jobTo(server.URL))
			if got, _ := kindOf(err); got != transientKind || !errors.Is(err, context.Canceled) ||
				!strings.Contains(err.Error(), "the attempt was stopped") {
				t.Fatalf("Handle = %v", err)
			}
		})
	}
	t.Run("timeout", func(t *testing.T) {
		stop := make(chan struct{})
		server := newServer(t, func(http.ResponseWriter, *http.Request) { <-stop })
		defer close(stop)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
		defer cancel()
		_, err := newHandler(t, Options{}).Handle(ctx, jobTo(server.URL))
		if got, _ := kindOf(err); got != transientKind || !errors.Is(err, context.DeadlineExceeded) ||
			!strings.Contains(err.Error(), "no full answer within the attempt's timeout") || bulk.Cause(err.Error()) != bulk.CauseTimeout {
			t.Fatalf("Handle = %v", err)
		}
	})
}

func TestAnswerBreaksOff(t *testing.T) {
	for status, want := range map[int]kind{200: transientKind, 422: finalKind} {
		_, err := attempt(t, func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, `{"a":1}`)
		})
		if got, _ := kindOf(err); err == nil || got != want {
			t.Errorf("%d: %v is %s; want %s", status, err, got, want)
		}
	}
}

// TestEndlessBody checks that an endless body is not read to its end, and is no error.
func TestEndlessBody(t *testing.T) {
	result, err := attempt(t, func(w http.ResponseWriter, _ *http.Request) {
		chunk := bytes.Repeat([]byte("1"), 4096)
		for {
			if _, err := w.Write(chunk); err != nil {
				return
			}
		}
	})
	if result != nil || err != nil {
		t.Fatalf("Handle = %q, %v", result, err)
	}
}

// reader counts the bytes read of an endless body.
type reader struct{ read int64 }

func (r *reader) Read(p []byte) (int, error) {
	r.read += int64(len(p))
	return len(p), nil
}

func TestReadIsBounded(t *testing.T) {
	for _, bound := range []int64{1, 2, 1000, 1 << 20} {
		body := &reader{}
		got, err := newHandler(t, Options{MaxResponseBytes: bound}).read(body)
		if err != nil || int64(len(got)) != bound+1 || body.read > 2*bound {
			t.Errorf("bound %d: %d bytes returned, %d read, %v", bound, len(got), body.read, err)
		}
	}
}

// TestConnectionsAreReused checks that connections are used again after any answer, so that
// there are no more than workers.
func TestConnectionsAreReused(t *testing.T) {
	const workers, each = 8, 50
	var connections atomic.Int32
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		statuses := []int{200, 404, 429, 500, 302}
		n, _ := strconv.Atoi(r.Header.Get("Sluice-Attempt"))
		w.WriteHeader(statuses[n%len(statuses)])
		_, _ = io.WriteString(w, strings.Repeat("x", n*40)) // some are longer than a result
	}))
	server.Config.ConnState = func(_ net.Conn, state http.ConnState) {
		if state == http.StateNew {
			connections.Add(1)
		}
	}
	server.Start()
	t.Cleanup(server.Close)
	h := newHandler(t, Options{MaxResponseBytes: 1024})
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for n := range each {
				job := jobTo(server.URL)
				job.Attempt = n
				_, _ = h.Handle(t.Context(), job)
			}
		})
	}
	group.Wait()
	// The transport may dial while another connection becomes free. If one kind of answer were not
	// read to its end, a fifth of the requests would need a connection each.
	if got := connections.Load(); got > workers*each/8 {
		t.Fatalf("%d connections for %d requests of %d workers", got, workers*each, workers)
	}
}

// TestStaleConnection checks that a kept connection that the target closes costs no attempt.
func TestStaleConnection(t *testing.T) {
	var requests atomic.Int32
	server := newServer(t, func(w http.ResponseWriter, r *http.Request) {
		if requests.Add(1) == 2 {
			conn, _, err := w.(http.Hijacker).Hijack()
			if err == nil {
				err = conn.Close()
			}
			if err != nil {
				t.Error(err)
			}
			return
		}
		_, _ = io.WriteString(w, "1")
	})
	h := newHandler(t, Options{})
	for range 2 {
		if result, err := h.Handle(t.Context(), jobTo(server.URL)); err != nil || string(result) != "1" {
			t.Fatalf("Handle = %q, %v", result, err)
		}
	}
	if requests.Load() != 3 {
		t.Fatalf("%d requests; want the second one sent again", requests.Load())
	}
}

func TestHTTP2(t *testing.T) {
	var protocol string
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		protocol = r.Proto
		_, _ = io.Copy(w, r.Body)
	}))
	server.EnableHTTP2 = true
	server.Config.ErrorLog = log.New(io.Discard, "", 0) // hides the handshake error below, which is expected
	server.StartTLS()
	t.Cleanup(server.Close)
	transport := newGuarded(1, loopback)
	roots := x509.NewCertPool()
	roots.AddCert(server.Certificate())
	transport.TLSClientConfig = &tls.Config{RootCAs: roots}
	h := newHandler(t, Options{Transport: transport})
	job := jobTo(server.URL)
	result, err := h.Handle(t.Context(), job)
	if err != nil || !bytes.Equal(result, job.Payload) || protocol != "HTTP/2.0" {
		t.Fatalf("Handle = %q, %v over %s", result, err, protocol)
	}
	// The error about an untrusted certificate is one line.
	_, err = newHandler(t, Options{}).Handle(t.Context(), job)
	if got, _ := kindOf(err); got != transientKind || !strings.Contains(err.Error(), "certificate") || strings.Contains(err.Error(), "\n") {
		t.Fatalf("unknown authority: %v", err)
	}
}

func BenchmarkHandle(b *testing.B) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.Copy(w, r.Body) }))
	defer server.Close()
	h, err := New(Options{Secrets: []string{vectorSecret}, Allow: loopback})
	if err != nil {
		b.Fatal(err)
	}
	defer h.Close()
	job := jobTo(server.URL)
	b.SetParallelism(16)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			if _, err := h.Handle(context.Background(), job); err != nil {
				b.Error(err)
				return
			}
		}
	})
}
