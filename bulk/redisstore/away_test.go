//go:build redis

package redisstore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/rediskv"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// calls returns every call of a store, about an action that has jobs in flight.
func calls(s *Store, id string, jobs []bulk.Job) map[string]func(context.Context) error {
	move := func(kind bulk.TransitionKind) func(context.Context) error {
		return func(ctx context.Context) error {
			_, err := s.Transition(ctx, id, bulk.Transition{Kind: kind})
			return ignore(err, bulk.ErrNoChange)
		}
	}
	return map[string]func(context.Context) error{
		"Create": func(ctx context.Context) error {
			_, _, err := s.Create(ctx, bulk.Spec{Tenant: "t", Type: "echo"})
			return err
		},
		"Append":     func(ctx context.Context) error { _, err := s.Append(ctx, "upload", 0, payloads(0, 5)); return err },
		"Transition": move(bulk.Pause), "Resume": move(bulk.Resume),
		"Action":  func(ctx context.Context) error { _, err := s.Action(ctx, id); return err },
		"Job":     func(ctx context.Context) error { _, err := s.Job(ctx, id, 0); return err },
		"Actions": func(ctx context.Context) error { _, err := s.Actions(ctx, bulk.ActionFilter{}); return err },
		"Unfinished": func(ctx context.Context) error {
			_, err := s.Actions(ctx, bulk.ActionFilter{Unfinished: true})
			return err
		},
		"Backlog": func(ctx context.Context) error { _, err := storetest.Backlog(ctx, s); return err },
		"Admit": func(ctx context.Context) error {
			_, err := s.Admit(ctx, []bulk.Grant{{Number: jobs[0].Lease.Action, Jobs: 1}})
			return err
		},
		"Lease": func(ctx context.Context) error { _, err := s.Lease(ctx, request(1)); return err },
		"Settle": func(ctx context.Context) error {
			_, err := s.Settle(ctx, settlements(bulk.Throttled, jobs))
			return err
		},
		"Dispatch":    func(ctx context.Context) error { _, _, err := s.Dispatch(ctx, 10); return err },
		"Outcomes":    func(ctx context.Context) error { _, _, err := s.Outcomes(ctx, id, 0); return err },
		"DeadLetters": func(ctx context.Context) error { _, err := s.DeadLetters(ctx, id, 0, 10); return err },
		"KeepEvents":  func(ctx context.Context) error { return s.KeepEvents(ctx, 1000) },
		"Events":      func(ctx context.Context) error { _, _, err := s.Events(ctx); return err },
		"Published":   func(ctx context.Context) error { return s.Published(ctx, numberBase) },
		"Settings":    func(ctx context.Context) error { _, err := s.Settings(ctx); return err },
		"StoredOf":    func(ctx context.Context) error { _, err := s.StoredOf(ctx, []string{"t"}); return err },
		"Set": func(ctx context.Context) error {
			return s.Set(ctx, bulk.SettingsChange{Name: "t", Tenant: &bulk.Tenant{Weight: 2}})
		},
		"PutSchedule": func(ctx context.Context) error {
			_, err := s.PutSchedule(ctx, bulk.Schedule{Name: "nightly"})
			return ignore(err, bulk.ErrConflict)
		},
		"RemoveSchedule": func(ctx context.Context) error { return ignore(s.RemoveSchedule(ctx, "none"), bulk.ErrNoSchedule) },
		"Schedules":      func(ctx context.Context) error { _, err := s.Schedules(ctx); return err },
	}
}

// TestTheServerIsAway checks that every call fails in bounded time, and with the same error,
// while the server is away. When it is back, the same store works again, and has all data.
func TestTheServerIsAway(t *testing.T) {
	t.Parallel()
	for _, shards := range shardCounts(1, 3) {
		server := redistest.Start(t, redistest.Options{Persist: redistest.Always})
		s := open(t, Options{URL: server.URL(), Shards: shards, CallTimeout: rediskv.DefaultCallTimeout})
		before := open(t, Options{URL: server.URL(), Shards: shards})
		start(t, before, bulk.Spec{ID: "a", Tenant: "t", Type: "echo", Aggregate: []string{"count"}}, 100)
		upload(t, before, bulk.Spec{ID: "upload", Tenant: "t", Type: "echo"}, 0)
		jobs := take(t, before, 3)
		for _, away := range []struct {
			name        string
			leave, back func()
		}{
			{"hangs", server.Pause, server.Continue},
			{"is killed", server.Kill, server.Restart},
		} {
			t.Run(fmt.Sprint(away.name, " with ", shards), func(t *testing.T) {
				away.leave()
				var group sync.WaitGroup
				for name, call := range calls(s, "a", jobs) {
					group.Go(func() {
						ctx, cancel := context.WithTimeout(t.Context(), until.Limit)
						defer cancel()
						if err := call(ctx); !errors.Is(err, bulk.ErrUnavailable) || ctx.Err() != nil {
							t.Errorf("%s: %v, %v; want bulk.ErrUnavailable", name, err, ctx.Err())
						}
					})
				}
				group.Wait()
				if opened, err := Open(t.Context(), Options{URL: server.URL(), Bulk: unlimited(), Logger: quiet}); !errors.Is(err, bulk.ErrUnavailable) {
					t.Errorf("Open: %v, %v, want bulk.ErrUnavailable", opened, err)
				}
				away.back()
				for _, call := range calls(s, "a", jobs) {
					recovered(t, func() error { return call(t.Context()) })
				}
				after := open(t, Options{URL: server.URL(), Shards: shards})
				if a := action(t, after, "a"); a.Received != 100 {
					t.Errorf("counts are %+v", a.Counts)
				}
			})
		}
	}
}

// TestTheCallerHasNoTime checks that a call does not wait for a server that hangs after its
// context has ended.
func TestTheCallerHasNoTime(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	s := open(t, Options{URL: server.URL()})
	server.Pause()
	defer server.Continue()
	ctx, cancel := context.WithCancel(t.Context())
	failed := make(chan error)
	go func() {
		_, err := storetest.Backlog(ctx, s)
		failed <- err
	}()
	cancel()
	select {
	case err := <-failed:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error is %v, want that the context was canceled", err)
		}
	case <-time.After(until.Limit):
		t.Error("it waits")
	}
}

func TestAReplicaIsUnavailable(t *testing.T) {
	t.Parallel()
	master, server := redistest.Start(t, redistest.Options{}), redistest.Start(t, redistest.Options{})
	s := open(t, Options{URL: server.URL()})
	host, port := master.HostPort()
	server.Cli("REPLICAOF", host, port)
	if _, _, err := s.Create(t.Context(), bulk.Spec{ID: "a", Tenant: "t", Type: "echo"}); !errors.Is(err, bulk.ErrUnavailable) {
		t.Errorf("error is %v from a replica, want bulk.ErrUnavailable", err)
	}
}

// TestScriptsAreForgotten checks that callers do not notice when the server loses its
// scripts.
func TestScriptsAreForgotten(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{})
	s := open(t, Options{URL: server.URL(), Shards: 2})
	var ran atomic.Int64
	engine := run(t, s, unlimited(), counting(&ran))
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for {
			select {
			case <-stop:
				return
			default:
				server.Cli("SCRIPT", "FLUSH")
			}
		}
	}()
	for i := range 4 {
		id := fmt.Sprint(i)
		upload(t, s, bulk.Spec{ID: id, Tenant: id, Type: "work", Aggregate: []string{"sum:n"}}, 500)
		if _, err := engine.Seal(t.Context(), id, 500); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 4 {
		completed(t, s, fmt.Sprint(i), 500)
	}
	close(stop)
	<-stopped
	if ran.Load() != 2000 {
		t.Errorf("%d jobs ran, want 2,000", ran.Load())
	}
}

// fillUp uploads jobs of 1,000 bytes until there is an error.
func fillUp(t *testing.T, s *Store, id string) (received int64, err error) {
	t.Helper()
	for {
		chunk := payloads(int(received), 100)
		for i := range chunk {
			chunk[i] = fmt.Appendf(chunk[i][:len(chunk[i])-1], `,"text":"%1000d"}`, i)
		}
		n, err := s.Append(t.Context(), id, received, chunk)
		if received = max(received, n); err != nil {
			return received, err
		}
	}
}

// TestTheMemoryIsFull checks that a full server accepts no more jobs, and that accepted jobs
// finish.
func TestTheMemoryIsFull(t *testing.T) {
	t.Parallel()
	server := redistest.Start(t, redistest.Options{Args: []string{"--maxmemory", "8mb"}})
	s := open(t, Options{URL: server.URL()})
	if _, _, err := s.Create(t.Context(), bulk.Spec{ID: "a", Tenant: "t", Type: "work", Aggregate: []string{"count", "sum:n"}}); err != nil {
		t.Fatal(err)
	}
	received, err := fillUp(t, s, "a")
	if !errors.Is(err, bulk.ErrFull) || received == 0 {
		t.Fatalf("after %d jobs: %v, want bulk.ErrFull", received, err)
	}
	server.Cli("CONFIG", "SET", "maxmemory", "2mb") // with a margin
	if _, _, err := s.Create(t.Context(), bulk.Spec{ID: "b", Tenant: "t", Type: "work"}); !errors.Is(err, bulk.ErrFull) {
		t.Errorf("Create: %v, want bulk.ErrFull", err)
	}
	if err := s.Set(t.Context(), bulk.SettingsChange{Name: "t", Tenant: &bulk.Tenant{Weight: 2}}); !errors.Is(err, bulk.ErrFull) {
		t.Errorf("Set: %v, want bulk.ErrFull", err)
	}
	var ran atomic.Int64
	engine := run(t, s, unlimited(), counting(&ran))
	if _, err := engine.Seal(t.Context(), "a", received); err != nil {
		t.Fatal(err)
	}
	completed(t, s, "a", received)
	if _, err := s.Transition(t.Context(), "a", bulk.Transition{Kind: bulk.Forget}); err != nil {
		t.Fatal(err)
	}
	server.Cli("CONFIG", "SET", "maxmemory", "8mb")
	upload(t, s, bulk.Spec{ID: "b", Tenant: "t", Type: "work"}, 1000)
	if ran.Load() != received {
		t.Errorf("%d jobs ran, of %d", ran.Load(), received)
	}
}
