package ops

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"sync"
	"time"
)

// CheckTime bounds all readiness checks of one request together.
const CheckTime = 2 * time.Second

// Check returns nil if a part can serve, or the reason why not. It returns when ctx
// ends, at the latest.
type Check func(ctx context.Context) error

var errStopping = errors.New("stopping")

// readiness has the checks.
type readiness struct {
	mu       sync.Mutex
	names    []string
	checks   map[string]Check
	stopping bool
}

// add registers a check. A duplicate name is a mistake in the program.
func (r *readiness) add(name string, check Check) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, exists := r.checks[name]; exists {
		panic(fmt.Sprintf("ops: there is a readiness check named %q already", name))
	}
	if r.checks == nil {
		r.checks = map[string]Check{}
	}
	r.names = append(r.names, name)
	r.checks[name] = check
}

func (r *readiness) stop() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.stopping = true
}

// failing runs all checks concurrently, within CheckTime, and returns the errors by name.
func (r *readiness) failing(ctx context.Context) map[string]string {
	ctx, cancel := context.WithTimeout(ctx, CheckTime)
	defer cancel()
	r.mu.Lock()
	names, stopping := r.names, r.stopping
	errs := make([]error, len(names))
	var running sync.WaitGroup
	for i, name := range names {
		check := r.checks[name]
		running.Go(func() { errs[i] = check(ctx) })
	}
	r.mu.Unlock()
	running.Wait()

	failing := map[string]string{}
	for i, err := range errs {
		if err != nil {
			failing[names[i]] = err.Error()
		}
	}
	if stopping {
		failing["server"] = errStopping.Error()
	}
	return failing
}

// readyAnswer is the body of /readyz.
type readyAnswer struct {
	Ready bool `json:"ready"`
	// NotReady has the error of each failed check, by name.
	NotReady map[string]string `json:"not_ready,omitempty"`
	// Warnings has what an operator should look at although the server is ready, by name.
	Warnings map[string]string `json:"warnings,omitempty"`
}

// serveReady answers 200 if every check passes, otherwise 503.
func (s *Server) serveReady(w http.ResponseWriter, request *http.Request) {
	var failing, warnings map[string]string
	var both sync.WaitGroup
	both.Go(func() { failing = s.Failing(request.Context()) })
	both.Go(func() { warnings = s.Warnings(request.Context()) })
	both.Wait()
	answer, err := json.Marshal(readyAnswer{Ready: len(failing) == 0, NotReady: failing, Warnings: warnings})
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	if len(failing) > 0 {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(answer, '\n')) // a client that is gone needs no answer
}

// alive answers 200: any answer shows that the process lives.
func alive(w http.ResponseWriter, _ *http.Request) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	_, _ = w.Write([]byte(`{"alive":true}` + "\n"))
}
