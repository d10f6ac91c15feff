package client

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk/api/wire"
)

// events writes actions as server-sent events.
func events(w http.ResponseWriter, statuses ...string) {
	w.Header().Set("Content-Type", "text/event-stream")
	for _, status := range statuses {
		data, _ := json.Marshal(wire.Action{ID: "a", Status: status})
		_, _ = fmt.Fprintf(w, ": heartbeat\n\nevent: message\ndata: %s\n\n", data)
	}
}

func TestWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := 0
		c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
			connections++
			switch connections {
			case 1:
				events(w, wire.StatusCreated, wire.StatusRunning)
				_, _ = io.WriteString(w, "data: {\"status\":\"half an ev")
			case 2:
				panic("cut")
			case 3:
				w.WriteHeader(http.StatusServiceUnavailable)
			default:
				events(w, wire.StatusRunning, wire.StatusCompleted)
			}
		}, WithAttempts(4))
		var seen []string
		err := c.Watch(t.Context(), "a", func(a wire.Action) error { seen = append(seen, a.Status); return nil })
		if want := []string{"CREATED", "RUNNING", "RUNNING", "COMPLETED"}; err != nil || !slices.Equal(seen, want) || connections != 4 {
			t.Fatal(seen, connections, err)
		}
	})
}

func TestWatchEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var connections int
		var handle http.HandlerFunc
		c := newClient(t, func(w http.ResponseWriter, r *http.Request) { connections++; handle(w, r) }, WithAttempts(3))
		none := func(wire.Action) error { return nil }

		handle = func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, 404, wire.Problem{Code: wire.CodeNotFound, Detail: "none"})
		}
		if err := c.Watch(t.Context(), "a", none); !IsCode(err, wire.CodeNotFound) || connections != 1 {
			t.Fatal(err, connections)
		}
		handle, connections = func(http.ResponseWriter, *http.Request) { panic("cut") }, 0
		if err := c.Watch(t.Context(), "a", none); err == nil || connections != 3 {
			t.Fatal(err, connections)
		}
		handle = func(w http.ResponseWriter, _ *http.Request) { events(w, wire.StatusRunning) }
		enough := errors.New("enough")
		if err := c.Watch(t.Context(), "a", func(wire.Action) error { return enough }); !errors.Is(err, enough) {
			t.Fatal(err)
		}
		handle = func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "data: [\n\n") }
		if err := c.Watch(t.Context(), "a", none); err == nil || !strings.Contains(err.Error(), "not an action") {
			t.Fatal(err)
		}
	})
}

// TestSilentWatch checks that a watch reconnects if there are no heartbeats.
func TestSilentWatch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		connections := 0
		transport := roundTrip(func(r *http.Request) (*http.Response, error) {
			connections++
			if connections == 1 {
				return &http.Response{StatusCode: http.StatusOK, Body: &silentBody{r.Context()}}, nil
			}
			w := httptest.NewRecorder()
			events(w, wire.StatusFailed)
			return w.Result(), nil
		})
		c, err := New("http://x", WithHTTPClient(&http.Client{Transport: transport}))
		if err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := c.Watch(t.Context(), "a", func(wire.Action) error { return nil }); err != nil {
			t.Fatal(err)
		}
		if waited := time.Since(began); waited < silence || waited > silence+time.Second || connections != 2 {
			t.Fatal(waited, connections)
		}
	})
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// silentBody returns nothing until its request ends.
type silentBody struct{ ctx context.Context }

func (b *silentBody) Read([]byte) (int, error) {
	<-b.ctx.Done()
	return 0, b.ctx.Err()
}

func (b *silentBody) Close() error { return nil }

// FuzzEvents checks that a watch ends without a panic for any input.
func FuzzEvents(f *testing.F) {
	f.Add([]byte(": heartbeat\n\ndata: {\"status\":\"COMPLETED\"}\n\n"))
	f.Add([]byte("data: {}\r\n\r\ndata:\n\n"))
	f.Fuzz(func(t *testing.T, stream []byte) {
		c := newClient(t, func(w http.ResponseWriter, _ *http.Request) { _, _ = io.Copy(w, bytes.NewReader(stream)) }, WithAttempts(1))
		final := false
		err := c.Watch(t.Context(), "a", func(a wire.Action) error { final = a.Final(); return nil })
		if (err == nil) != final {
			t.Fatalf("final %v, but %v", final, err)
		}
	})
}
