package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/upload"
)

// network is a transport that calls a handler in memory. A handler that panics with a string
// cuts the connection, before or after it has done its work.
type network struct{ http.Handler }

func (n network) RoundTrip(r *http.Request) (response *http.Response, err error) {
	if err := r.Context().Err(); err != nil {
		return nil, err
	}
	defer func() {
		if cut := recover(); cut != nil {
			response, err = nil, fmt.Errorf("connection reset: %v", cut)
		}
	}()
	w := httptest.NewRecorder()
	n.ServeHTTP(w, r)
	return w.Result(), nil
}

func newClient(t interface{ Fatal(...any) }, handler http.HandlerFunc, options ...Option) *Client {
	c, err := New("http://sluice.test/", append([]Option{WithHTTPClient(&http.Client{Transport: network{handler}})}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func refuse(w http.ResponseWriter, status int, problem wire.Problem) {
	w.Header().Set("Content-Type", "application/problem+json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(problem)
}

func TestNew(t *testing.T) {
	for _, bad := range []string{"", "localhost:8080", "ftp://x", "http://", "http://x?a=b", "://"} {
		if _, err := New(bad); err == nil || !strings.Contains(err.Error(), "want a URL") {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestRetries(t *testing.T) {
	tests := []struct {
		name     string
		failures int // the number of attempts that fail before one succeeds
		fail     func(http.ResponseWriter)
		once     bool
		attempts int
		least    time.Duration
		ok       bool
	}{
		{"a cut connection", 3, func(http.ResponseWriter) { panic("cut") }, false, 4, 350 * time.Millisecond, true},
		{"for ever", 99, func(http.ResponseWriter) { panic("cut") }, false, 5, 700 * time.Millisecond, false},
		{"unavailable", 1, func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "7")
			w.WriteHeader(http.StatusServiceUnavailable)
		}, false, 2, 7 * time.Second, true},
		{"an absurd Retry-After", 1, func(w http.ResponseWriter) {
			w.Header().Set("Retry-After", "86400")
			w.WriteHeader(http.StatusTooManyRequests)
		}, false, 2, 30 * time.Second, true},
		{"a proxy", 1, func(w http.ResponseWriter) { w.WriteHeader(http.StatusBadGateway) }, false, 2, 50 * time.Millisecond, true},
		{"a mistake of the server", 1, func(w http.ResponseWriter) { w.WriteHeader(http.StatusInternalServerError) }, false, 1, 0, false},
		{"a refusal", 1, func(w http.ResponseWriter) { w.WriteHeader(http.StatusConflict) }, false, 1, 0, false},
		{"what must not be made twice", 1, func(http.ResponseWriter) { panic("cut") }, true, 1, 0, false},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				attempts := 0
				c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
					if attempts++; attempts <= test.failures {
						test.fail(w)
						return
					}
					_, _ = io.WriteString(w, "{}")
				}, WithAttempts(5))
				began := time.Now()
				var err error
				if test.once {
					_, err = c.Replay(t.Context(), wire.Replay{Action: "a"})
				} else {
					_, err = c.Pause(t.Context(), "a")
				}
				if (err == nil) != test.ok || attempts != test.attempts {
					t.Fatalf("%d attempts, %v", attempts, err)
				}
				if took := time.Since(began); took < test.least || took > 2*test.least+time.Second {
					t.Fatalf("took %v", took)
				}
			})
		})
	}
}

func TestRequestsEndWithTheirContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newClient(t, func(http.ResponseWriter, *http.Request) { panic("cut") })
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		began := time.Now()
		if _, err := c.Action(ctx, "a"); err == nil || time.Since(began) != 300*time.Millisecond {
			t.Fatal(err, time.Since(began))
		}
		if err := c.Watch(ctx, "a", func(wire.Action) error { return nil }); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatal(err)
		}
	})
}

func TestErrors(t *testing.T) {
	received := int64(7)
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		switch r.URL.Path {
		case "/v1/actions/full":
			w.Header().Set("Retry-After", "1")
			refuse(w, 507, wire.Problem{Code: wire.CodeFull, Detail: "no room", Received: &received})
		case "/v1/actions/html":
			w.WriteHeader(http.StatusNotFound)
			_, _ = io.WriteString(w, "<html>nothing here</html>")
		default:
			_, _ = io.WriteString(w, "not JSON")
		}
	})
	_, err := c.Action(t.Context(), "full")
	var refused *Error
	if !errors.As(err, &refused) || *refused.Received != 7 || refused.RetryAfter != time.Second || !IsCode(err, wire.CodeFull) || IsCode(err, wire.CodeNotFound) {
		t.Fatal(err)
	}
	if err.Error() != "the server answered 507 Insufficient Storage: no room" {
		t.Fatal(err)
	}
	if _, err = c.Action(t.Context(), "html"); !errors.As(err, &refused) || refused.Status != 404 || !strings.Contains(err.Error(), "nothing here") {
		t.Fatal(err)
	}
	if _, err = c.Action(t.Context(), "other"); err == nil || !strings.Contains(err.Error(), "not what this API has") {
		t.Fatal(err)
	}
}

// jobServer keeps the jobs of one action, and fails on demand.
type jobServer struct {
	mu   sync.Mutex
	jobs []string
	// cut returns what happens to an upload: 0 succeeds, 1 fails before, 2 takes all and
	// fails, 3 takes a half and fails, 4 is unavailable.
	cut    func() int
	chunks int
}

func (s *jobServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if r.Method == http.MethodGet {
		_ = json.NewEncoder(w).Encode(wire.Action{ID: "a", Received: int64(len(s.jobs))})
		return
	}
	s.chunks++
	cut := s.cut()
	switch cut {
	case 1:
		panic("before")
	case 4:
		refuse(w, 503, wire.Problem{Code: wire.CodeBusy, Detail: "busy"})
		return
	}
	offset, err := strconv.Atoi(r.Header.Get("Upload-Offset"))
	if err != nil || offset > len(s.jobs) {
		received := int64(len(s.jobs))
		refuse(w, 409, wire.Problem{Code: wire.CodeOffset, Detail: "beyond", Received: &received})
		return
	}
	var lines []string
	for parser := upload.NewNDJSON(r.Body); ; {
		payload, err := parser.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			refuse(w, 400, wire.Problem{Code: wire.CodeBadLine, Detail: err.Error()})
			return
		}
		lines = append(lines, string(payload))
	}
	if cut == 3 {
		lines = lines[:len(lines)/2]
	}
	if have := len(s.jobs) - offset; have < len(lines) {
		s.jobs = append(s.jobs, lines[have:]...)
	}
	if cut > 0 {
		panic("after")
	}
	_ = json.NewEncoder(w).Encode(wire.Received{Received: int64(len(s.jobs))})
}

// slice is a source of payloads that reuses its buffer.
type slice struct {
	payloads []string
	buffer   []byte
	err      error
}

func (s *slice) Next() ([]byte, error) {
	if len(s.payloads) == 0 {
		if s.err != nil {
			return nil, s.err
		}
		return nil, io.EOF
	}
	s.buffer = append(s.buffer[:0], s.payloads[0]...)
	s.payloads = s.payloads[1:]
	return s.buffer, nil
}

// TestUploadSurvives checks that after any failure each job is there once and in order.
func TestUploadSurvives(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		jobs := make([]string, rapid.IntRange(0, 60).Draw(t, "jobs"))
		for i := range jobs {
			jobs[i] = fmt.Sprintf(`{"n":%d}`, i)
		}
		failures := rapid.SliceOfN(rapid.IntRange(0, 4), 0, 20).Draw(t, "failures")
		before := rapid.IntRange(0, len(jobs)).Draw(t, "received before")
		server := &jobServer{jobs: slices.Clone(jobs[:before]), cut: func() int {
			if len(failures) == 0 {
				return 0
			}
			defer func() { failures = failures[1:] }()
			return failures[0]
		}}
		c := newClient(t, server.ServeHTTP, WithChunk(rapid.IntRange(1, 20).Draw(t, "chunk"), 1<<20), WithAttempts(30))
		c.api.Retry.Base, c.api.Retry.Cap = time.Microsecond, time.Microsecond
		received, err := c.Upload(context.Background(), "a", &slice{payloads: jobs})
		if err != nil || received != int64(len(jobs)) || !slices.Equal(server.jobs, jobs) {
			t.Fatalf("%d, %v: %q", received, err, server.jobs)
		}
	})
}

func TestUpload(t *testing.T) {
	works := func() int { return 0 }
	server := &jobServer{cut: works}
	c := newClient(t, server.ServeHTTP, WithChunk(100, 20))
	payloads := []string{"{\n \"a\":\r\n 1}", "2", `"` + strings.Repeat("x", 50) + `"`, "4"}
	received, err := c.Upload(t.Context(), "a", &slice{payloads: payloads})
	if want := []string{`{"a":1}`, "2", payloads[2], "4"}; err != nil || received != 4 || !slices.Equal(server.jobs, want) || server.chunks != 2 {
		t.Fatalf("%d, %v, %d chunks: %q", received, err, server.chunks, server.jobs)
	}
	if _, err := c.Upload(t.Context(), "a", &slice{payloads: payloads[:1]}); err == nil || !strings.Contains(err.Error(), "not the same upload") {
		t.Fatal(err)
	}
	broken := errors.New("the file is cut")
	if received, err := c.Upload(t.Context(), "a", &slice{payloads: payloads, err: broken}); !errors.Is(err, broken) || received != 4 {
		t.Fatal(received, err)
	}
	if _, err := c.Upload(t.Context(), "a", &slice{payloads: []string{"1", "1", "1", "1", "{\n"}}); err == nil || !strings.Contains(err.Error(), "payload") {
		t.Fatal(err)
	}
	if _, err := c.UploadChunk(t.Context(), "a", 9, [][]byte{[]byte("1")}); !IsCode(err, wire.CodeOffset) {
		t.Fatal(err)
	}
}

// TestUploadToAServerThatWasSetBack checks that an upload fails if the server has lost
// acknowledged jobs.
func TestUploadToAServerThatWasSetBack(t *testing.T) {
	server := &jobServer{jobs: []string{"1", "2", "3"}}
	server.cut = func() int {
		server.jobs = nil
		return 1
	}
	c := newClient(t, server.ServeHTTP)
	if _, err := c.UploadChunk(t.Context(), "a", 3, [][]byte{[]byte("4")}); !errors.Is(err, errLost) {
		t.Fatal(err)
	}
}

func TestUploadStopsAtAFullStore(t *testing.T) {
	received := int64(2)
	c := newClient(t, func(w http.ResponseWriter, r *http.Request) {
		if r.Method == http.MethodGet {
			_, _ = io.WriteString(w, "{}")
			return
		}
		refuse(w, 507, wire.Problem{Code: wire.CodeFull, Detail: "full", Received: &received})
	})
	got, err := c.Upload(t.Context(), "a", &slice{payloads: []string{"1", "2", "3"}})
	if got != 2 || !IsCode(err, wire.CodeFull) {
		t.Fatal(got, err)
	}
}

// A job without a key must not be enqueued twice, so that only one with a key is sent again.
func TestEnqueueIsRepeatedOnlyWithAKey(t *testing.T) {
	for unique, want := range map[string]int{"": 1, "k": 2} {
		synctest.Test(t, func(t *testing.T) {
			attempts := 0
			c := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
				if attempts++; attempts == 1 {
					panic("cut")
				}
				_, _ = io.WriteString(w, `{"id":"a-3","action":"a","index":3,"duplicate":true}`)
			})
			enqueued, err := c.Enqueue(t.Context(), wire.NewJob{Tenant: "t", Type: "echo", Payload: []byte("1"), Unique: unique})
			if attempts != want || (err == nil) != (want == 2) || err == nil && (enqueued.ID != "a-3" || enqueued.Index != 3 || !enqueued.Duplicate) {
				t.Errorf("with the key %q: %d attempts, %+v, %v; want %d", unique, attempts, enqueued, err, want)
			}
		})
	}
}
