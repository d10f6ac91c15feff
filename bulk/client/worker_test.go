package client

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
)

// leasing is a server that leases jobs once, and keeps the outcomes.
type leasing struct {
	jobs     int
	away     int               // requests for jobs that are refused before
	verdict  string            // of extensions
	extended int               // requests
	outcomes map[string]string // by job
}

func (l *leasing) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	answer := any(nil)
	switch r.URL.Path {
	case "/v1/leases":
		if l.away > 0 {
			l.away--
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		leased := wire.Leases{Jobs: []wire.Job{}}
		for ; l.jobs > 0; l.jobs-- {
			leased.Jobs = append(leased.Jobs, wire.Job{ID: fmt.Sprint("a-", l.jobs), Type: "t", Payload: []byte("{}"), Attempt: 1, Lease: fmt.Sprint(l.jobs)})
		}
		if len(leased.Jobs) == 0 {
			<-time.After(leaseWait)
		}
		answer = leased
	case "/v1/leases/ack":
		var request wire.Acknowledgement
		_ = json.NewDecoder(r.Body).Decode(&request)
		for _, o := range request.Outcomes {
			l.outcomes[o.Lease] = strings.TrimSpace(o.Status + " " + o.Error)
		}
		answer = wire.Verdicts{}
	case "/v1/leases/extend":
		l.extended++
		var request wire.Extension
		_ = json.NewDecoder(r.Body).Decode(&request)
		verdicts := wire.Verdicts{}
		for _, lease := range request.Leases {
			verdicts.Verdicts = append(verdicts.Verdicts, wire.Verdict{Lease: lease, Verdict: l.verdict})
		}
		answer = verdicts
	}
	_ = json.NewEncoder(w).Encode(answer)
}

// TestWorker: what becomes of two jobs, of which one may run at a time, when the worker is told to stop
// after ten seconds.
func TestWorker(t *testing.T) {
	ended := func(context.Context, *bulk.Job) ([]byte, error) { return nil, nil }
	hangs := func(ctx context.Context, _ *bulk.Job) ([]byte, error) {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	for name, c := range map[string]struct {
		handler  bulk.HandlerFunc
		server   leasing
		options  WorkerOptions
		outcomes map[string]string
		took     time.Duration
	}{
		"they end": {ended, leasing{}, WorkerOptions{}, map[string]string{"1": "succeeded", "2": "succeeded"}, 10 * time.Second},
		"the server is away at first": {ended, leasing{away: 3}, WorkerOptions{},
			map[string]string{"1": "succeeded", "2": "succeeded"}, 10 * time.Second},
		"the first hangs till the end of the grace": {hangs, leasing{verdict: "accepted"}, WorkerOptions{Grace: 5 * time.Second},
			map[string]string{"1": "released", "2": "released"}, 15 * time.Second},
		"the first does not end for its context": {
			func(context.Context, *bulk.Job) ([]byte, error) { <-time.After(time.Hour); return nil, nil },
			leasing{verdict: "accepted"}, WorkerOptions{Grace: -1},
			map[string]string{"1": "released", "2": "released"}, 10 * time.Second,
		},
		"they are canceled": {hangs, leasing{verdict: "canceled"}, WorkerOptions{Lease: 3 * time.Second},
			map[string]string{"1": "released", "2": "released"}, 10 * time.Second},
		"a panic": {func(context.Context, *bulk.Job) ([]byte, error) { panic("no") }, leasing{}, WorkerOptions{},
			map[string]string{"1": "retry panic: no", "2": "retry panic: no"}, 10 * time.Second},
		"a result that is no JSON": {func(context.Context, *bulk.Job) ([]byte, error) { return []byte("{"), nil }, leasing{}, WorkerOptions{},
			map[string]string{"1": "retry the handler's result is not JSON", "2": "retry the handler's result is not JSON"}, 10 * time.Second},
		"they are not to be tried again": {func(context.Context, *bulk.Job) ([]byte, error) { return nil, fmt.Errorf("why: %w", bulk.SkipRetry) }, leasing{}, WorkerOptions{},
			map[string]string{"1": "failed why: not to be retried", "2": "failed why: not to be retried"}, 10 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := c.server
				server.jobs, server.outcomes = 2, map[string]string{}
				mux := bulk.NewMux()
				mux.HandleFunc("t", c.handler)
				c.options.Concurrency, c.options.Logger = 1, slog.New(slog.NewTextHandler(io.Discard, nil))
				client := newClient(t, server.ServeHTTP)
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				began := time.Now()
				if err := client.NewWorker(mux, c.options).Run(ctx); err != nil {
					t.Fatal(err)
				}
				if took := time.Since(began); took < c.took || took > c.took+leaseWait {
					t.Errorf("Run took %v, want %v and at most %v more", took, c.took, leaseWait)
				}
				if fmt.Sprint(server.outcomes) != fmt.Sprint(c.outcomes) {
					t.Errorf("outcomes %v, want %v", server.outcomes, c.outcomes)
				}
				<-time.After(2 * time.Hour) // handlers end
			})
		})
	}
}

// TestWorkerRefused: a worker that the server refuses for good ends.
func TestWorkerRefused(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		client := newClient(t, func(w http.ResponseWriter, _ *http.Request) {
			refuse(w, http.StatusForbidden, wire.Problem{Detail: "not these types"})
		})
		mux := bulk.NewMux()
		mux.HandleFunc("t", func(context.Context, *bulk.Job) ([]byte, error) { return nil, nil })
		err := client.NewWorker(mux, WorkerOptions{}).Run(t.Context())
		if refused := (*Error)(nil); !errors.As(err, &refused) || refused.Status != http.StatusForbidden {
			t.Error(err)
		}
	})
}
