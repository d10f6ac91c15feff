//go:build redis && !race

package redisstore

import (
	"fmt"
	"os"
	"strconv"
	"testing"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// memory measures the memory of a server by its used_memory.
type memory struct {
	t      *testing.T
	server *redistest.Server
	store  *Store
	used   int64
}

func newMemory(t *testing.T) *memory {
	m := &memory{t: t, server: redistest.Start(t, redistest.Options{})}
	m.store = open(t, Options{URL: m.server.URL()})
	m.now()
	return m
}

func (m *memory) now() int64 {
	m.t.Helper()
	// The server frees large values in the background.
	until.True(m.t, "the server has freed what was deleted", func() bool { return m.server.Info("lazyfree_pending_objects") == "0" })
	used, err := strconv.ParseInt(m.server.Info("used_memory"), 10, 64)
	if err != nil {
		m.t.Fatal(err)
	}
	since := used - m.used
	m.used = used
	return since
}

// each logs the bytes per thing of n things added since its last call, and fails if they
// exceed most.
func (m *memory) each(what string, n, most int64) {
	m.t.Helper()
	bytes := m.now() / n
	m.t.Logf("%s: %d bytes", what, bytes)
	if bytes > most {
		m.t.Errorf("%s: %d bytes, want at most %d", what, bytes, most)
	}
}

// hundred returns n payloads of 100 bytes.
func hundred(n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = fmt.Appendf(nil, `{"n":%8d,"text":"%78d"}`, i, i)
	}
	return list
}

// add creates running actions, ten for each tenant.
func (m *memory) add(prefix string, actions, jobs int) {
	m.t.Helper()
	for n := range actions {
		id := fmt.Sprint(prefix, n)
		upload(m.t, m.store, bulk.Spec{ID: id, Tenant: fmt.Sprint("tenant", n/10), Type: "echo"}, 0)
		for sent := 0; sent < jobs; {
			chunk := hundred(min(1000, jobs-sent))
			received, err := m.store.Append(m.t.Context(), id, int64(sent), chunk)
			if err != nil {
				m.t.Fatal(err)
			}
			sent = int(received)
		}
		for _, move := range []bulk.Transition{{Kind: bulk.Seal, Total: int64(jobs)}, {Kind: bulk.Start}} {
			if _, err := m.store.Transition(m.t.Context(), id, move); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

// end runs all jobs, each with a result, and ends the actions.
func (m *memory) end(prefix string, actions int, kind bulk.SettlementKind) {
	m.t.Helper()
	for {
		if _, err := admit(m.t.Context(), m.store, 5000); err != nil {
			m.t.Fatal(err)
		}
		jobs, err := m.store.Lease(m.t.Context(), request(5000))
		if err != nil {
			m.t.Fatal(err)
		}
		if len(jobs) == 0 {
			break
		}
		if _, err := m.store.Settle(m.t.Context(), settlements(kind, jobs)); err != nil {
			m.t.Fatal(err)
		}
	}
	for n := range actions {
		for _, move := range []bulk.Transition{{Kind: bulk.Aggregate}, {Kind: bulk.Complete}} {
			if _, err := m.store.Transition(m.t.Context(), fmt.Sprint(prefix, n), move); err != nil {
				m.t.Fatal(err)
			}
		}
	}
}

// TestMemory checks that the measured numbers are below those of docs/bulk/redis.md.
func TestMemory(t *testing.T) {
	t.Parallel()
	jobs := 20_000
	if os.Getenv("SLUICE_LONG") != "" {
		jobs = 100_000
	}
	t.Run("many actions", func(t *testing.T) {
		m := newMemory(t)
		m.add("warm", 1, 1) // the data that a store has once
		m.now()
		m.add("a", 100, jobs/100)
		m.each("a job that waits, of a hundredth", int64(jobs), 300)
	})
	t.Run("one action", func(t *testing.T) {
		m := newMemory(t)
		m.add("a", 1, jobs)
		m.each("a job that waits, of one action", int64(jobs), 300)
		if _, err := admit(t.Context(), m.store, int64(jobs/2)); err != nil {
			t.Fatal(err)
		}
		leased := 0
		for leased < 10_000 {
			some, err := m.store.Lease(t.Context(), request(1000))
			if err != nil || len(some) == 0 {
				t.Fatalf("%d jobs leased after %d: %v", len(some), leased, err)
			}
			leased += len(some)
		}
		m.each("a job in flight, beside its payload", int64(leased), 300)
	})
	t.Run("finished jobs", func(t *testing.T) {
		m := newMemory(t)
		m.add("warm", 1, 1)
		m.end("warm", 1, bulk.Succeeded)
		m.now()
		m.add("a", 1, jobs)
		m.end("a", 1, bulk.Succeeded)
		m.each("a job that has succeeded", int64(jobs), 20)
	})
	t.Run("dead letters", func(t *testing.T) {
		m := newMemory(t)
		m.add("a", 1, 20_000)
		m.end("a", 1, bulk.FailedForGood)
		m.each("a dead letter, with its payload", 20_000, 500)
	})
	t.Run("actions", func(t *testing.T) {
		m := newMemory(t)
		m.add("warm", 1, 1)
		m.now()
		m.add("a", 500, 1)
		m.each("an action of one job that waits", 500, 3000)
		m.end("a", 500, bulk.Succeeded)
		m.add("b", 500, 1)
		m.end("b", 500, bulk.Succeeded)
		m.each("a finished action of one job", 1000, 3000)
	})
}
