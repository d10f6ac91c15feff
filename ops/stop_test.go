package ops

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// pipes is a network in memory, which synctest can wait for.
type pipes struct {
	accepted chan net.Conn
	closed   chan struct{}
	once     sync.Once
}

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case conn := <-p.accepted:
		return conn, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}

func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipes"} }

func (p *pipes) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	client, server := net.Pipe()
	select {
	case p.accepted <- server:
		return client, nil
	case <-p.closed:
		return nil, net.ErrClosed
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// startInMemory starts s in the bubble of the test and returns its client.
func startInMemory(t *testing.T, s *Server) *http.Client {
	t.Helper()
	p := &pipes{accepted: make(chan net.Conn), closed: make(chan struct{})}
	s.listen = func(context.Context, string, string) (net.Listener, error) { return p, nil }
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DialContext: p.dial}
	t.Cleanup(transport.CloseIdleConnections)
	return &http.Client{Transport: transport}
}

// fetch gets path in the background; the channel gets the body or the error.
func fetch(t *testing.T, client *http.Client, path string) <-chan string {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "http://localhost"+path, nil)
	if err != nil {
		t.Fatal(err)
	}
	result := make(chan string, 1)
	go func() {
		response, err := client.Do(request)
		if err != nil {
			result <- "error: " + err.Error()
			return
		}
		defer func() { _ = response.Body.Close() }()
		body, err := io.ReadAll(response.Body)
		if err != nil {
			body = append(body, " error: "+err.Error()...)
		}
		result <- string(body)
	}()
	synctest.Wait()
	return result
}

// stop stops s within grace and returns how long that took.
func stop(t *testing.T, s *Server, grace time.Duration) (time.Duration, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), grace)
	defer cancel()
	began := time.Now()
	err := s.Stop(ctx)
	return time.Since(began), err
}

func TestStopLetsARequestFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{Logger: quiet()})
		s.mux.HandleFunc("/slow", func(w http.ResponseWriter, r *http.Request) {
			select {
			case <-time.After(3 * time.Second):
				_, _ = io.WriteString(w, "finished")
			case <-r.Context().Done():
				_, _ = io.WriteString(w, "interrupted")
			}
		})
		answer := fetch(t, startInMemory(t, s), "/slow")
		took, err := stop(t, s, time.Minute)
		if err != nil || took < 3*time.Second || took > DrainTime {
			t.Errorf("Stop took %v with %v, want about 3s: the time of the request", took, err)
		}
		if got := <-answer; got != "finished" {
			t.Errorf("the request got %q, want it to finish", got)
		}
	})
}

func TestStopEndsEventStreamsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{Logger: quiet()})
		s.mux.HandleFunc("/watch", func(w http.ResponseWriter, r *http.Request) {
			w.Header().Set("Content-Type", "text/event-stream; charset=utf-8")
			_, _ = io.WriteString(w, "data: 1\n\n")
			_ = http.NewResponseController(w).Flush()
			<-r.Context().Done()
			_, _ = io.WriteString(w, "data: end\n\n")
		})
		answer := fetch(t, startInMemory(t, s), "/watch")
		took, err := stop(t, s, time.Minute)
		if err != nil || took > time.Second {
			t.Errorf("Stop took %v with %v, want no wait for an event stream", took, err)
		}
		if got := <-answer; got != "data: 1\n\ndata: end\n\n" {
			t.Errorf("the stream got %q, want a whole end", got)
		}
	})
}

// A long poll is not an event stream: its context ends when DrainTime is over.
func TestStopEndsTheContextOfLongRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{Logger: quiet()})
		s.mux.HandleFunc("/poll", func(w http.ResponseWriter, r *http.Request) {
			<-r.Context().Done()
			_, _ = io.WriteString(w, "nothing yet")
		})
		answer := fetch(t, startInMemory(t, s), "/poll")
		took, err := stop(t, s, time.Minute)
		if err != nil || took < DrainTime || took > DrainTime+time.Second {
			t.Errorf("Stop took %v with %v, want about %v", took, err, DrainTime)
		}
		if got := <-answer; got != "nothing yet" {
			t.Errorf("the request got %q, want its answer", got)
		}
	})
}

func TestStopCutsOffWhatIgnoresItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{Logger: quiet()})
		s.mux.HandleFunc("/stuck", func(http.ResponseWriter, *http.Request) { <-time.After(time.Hour) })
		answer := fetch(t, startInMemory(t, s), "/stuck")
		took, err := stop(t, s, 10*time.Second)
		if !errors.Is(err, context.DeadlineExceeded) || took != 10*time.Second {
			t.Errorf("Stop took %v with %v, want its deadline of 10s and the error", took, err)
		}
		if got := <-answer; !strings.HasPrefix(got, "error: ") {
			t.Errorf("the request got %q, want to be cut off", got)
		}
		<-time.After(time.Hour)
	})
}

// Checks share CheckTime: one that waits for ever cannot delay the answer.
func TestReadyAnswersThoughACheckHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{Logger: quiet()})
		s.Ready("hanging", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() })
		s.Ready("fine", func(context.Context) error { return nil })
		began := time.Now()
		got := <-fetch(t, startInMemory(t, s), "/readyz")
		want := `{"ready":false,"not_ready":{"hanging":"context deadline exceeded"}}` + "\n"
		if took := time.Since(began); got != want || took != CheckTime {
			t.Errorf("after %v: %s, want after %v: %s", took, got, CheckTime, want)
		}
		if _, err := stop(t, s, time.Minute); err != nil {
			t.Error(err)
		}
	})
}

func TestStoppingIsNotReady(t *testing.T) {
	var r readiness
	r.add("bulk", func(context.Context) error { return nil })
	r.stop()
	if failing := r.failing(t.Context()); failing["server"] != "stopping" {
		t.Fatalf("failing: %v, want the server, since it is stopping", failing)
	}
}

// A connection whose request was ended serves no other.
func TestNothingFollowsARequestThatWasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := NewServer(Options{Logger: quiet()})
		s.mux.HandleFunc("/ended", func(w http.ResponseWriter, r *http.Request) {
			w.(*reply).cancel()
			<-r.Context().Done()
			_, _ = io.WriteString(w, "ended")
		})
		conn, err := startInMemory(t, s).Transport.(*http.Transport).DialContext(t.Context(), "", "")
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(conn, "GET /ended HTTP/1.1\r\nHost: localhost\r\n\r\n"); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if answer, err := io.ReadAll(conn); err != nil || !strings.HasSuffix(string(answer), "ended") {
			t.Errorf("%q, %v", answer, err)
		}
		if time.Since(began) > 0 {
			t.Error("the connection was kept for another request")
		}
		if _, err := stop(t, s, time.Minute); err != nil {
			t.Error(err)
		}
	})
}
