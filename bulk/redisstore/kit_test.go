//go:build redis

package redisstore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/engine"
	"github.com/sluice-project/sluice/bulk/storetest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

var quiet = slog.New(slog.DiscardHandler)

// unlimited is the config of most tests.
func unlimited() bulk.Config { return bulk.Config{RequestsPerSecond: -1}.WithDefaults() }

// patient is the call timeout in most tests: on a busy machine, a healthy server can take
// longer than a production timeout.
const patient = 30 * time.Second

// shardCounts returns most, and with SLUICE_LONG also few: a store of one shard has fewer
// ways to fail than one of several.
func shardCounts(few, most int) []int {
	if os.Getenv("SLUICE_LONG") != "" {
		return []int{few, most}
	}
	return []int{most}
}

// open opens a patient store without limits, unless options say otherwise, and closes it when
// the test ends.
func open(t testing.TB, options Options) *Store {
	t.Helper()
	if options.Logger == nil {
		options.Logger = quiet
	}
	if options.Bulk.Window == 0 {
		options.Bulk = unlimited()
	}
	options.CallTimeout = cmp.Or(options.CallTimeout, patient)
	var s *Store
	recovered(t, func() (err error) { // a call timeout that a test sets may be short for a busy machine
		s, err = Open(t.Context(), options)
		return err
	})
	t.Cleanup(func() { _ = s.Close() }) // it never fails
	return s
}

// clock is a clock that tests advance; stores use it instead of their server's.
type clock struct{ ms atomic.Int64 }

func newClock() *clock {
	c := &clock{}
	// It is later than the server's clock, which was used when the store was opened.
	c.ms.Store(time.Now().Add(time.Hour).Truncate(time.Second).UnixMilli())
	return c
}

func (c *clock) now() (time.Time, bool) { return time.UnixMilli(c.ms.Load()), true }

func (c *clock) advance(d time.Duration) { c.ms.Add(d.Milliseconds()) }

// payloads returns n payloads that contain their index, starting at first.
func payloads(first, n int) [][]byte {
	list := make([][]byte, n)
	for i := range list {
		list[i] = fmt.Appendf(nil, `{"n":%d}`, first+i)
	}
	return list
}

// upload creates an action and appends n jobs to it.
func upload(t testing.TB, s *Store, spec bulk.Spec, n int) {
	t.Helper()
	if _, _, err := s.Create(t.Context(), spec); err != nil {
		t.Fatal(err)
	}
	if n == 0 {
		return
	}
	if received, err := s.Append(t.Context(), spec.ID, 0, payloads(0, n)); err != nil || received != int64(n) {
		t.Fatalf("%d received, %v; want %d", received, err, n)
	}
}

// start uploads n jobs and starts the action.
func start(t testing.TB, s *Store, spec bulk.Spec, n int) {
	t.Helper()
	upload(t, s, spec, n)
	for _, move := range []bulk.Transition{{Kind: bulk.Seal, Total: int64(n)}, {Kind: bulk.Start}} {
		if _, err := s.Transition(t.Context(), spec.ID, move); err != nil && !errors.Is(err, bulk.ErrNoChange) { // an engine may have made it
			t.Fatal(err)
		}
	}
}

// admit admits up to `most` waiting jobs of each action.
func admit(ctx context.Context, s *Store, most int64) (int, error) {
	b, err := storetest.Backlog(ctx, s)
	if err != nil {
		return 0, err
	}
	var grants []bulk.Grant
	for _, line := range b.Lines {
		for _, w := range line.Waiting {
			grants = append(grants, bulk.Grant{Number: w.Number, Jobs: min(most, w.Jobs)})
		}
	}
	return s.Admit(ctx, grants)
}

// request is a request for n jobs of the types that tests use, for 30 s.
func request(n int) bulk.LeaseRequest {
	return bulk.LeaseRequest{Types: []string{"echo", bulk.WebhookType}, Max: n, LeaseFor: 30 * time.Second}
}

// take admits and leases n jobs: for an hour by a server's clock, which a busy machine does not reach, and as
// request says by a test's. It may try several times: a window, with its parts of limits, may end between the two
// steps.
func take(t testing.TB, s *Store, n int) (jobs []bulk.Job) {
	t.Helper()
	leaseFor := time.Hour
	if _, set := s.now(); set {
		leaseFor = request(n).LeaseFor
	}
	until.Succeeds(t, "jobs are leased", func() error {
		if _, err := admit(t.Context(), s, int64(n)); err != nil {
			t.Fatal(err)
		}
		lease := request(n - len(jobs))
		lease.LeaseFor = leaseFor
		more, err := s.Lease(t.Context(), lease)
		if err != nil {
			t.Fatal(err)
		}
		if jobs = append(jobs, more...); len(jobs) < n {
			return fmt.Errorf("%d, want %d", len(jobs), n)
		}
		return nil
	})
	return jobs
}

func settlements(kind bulk.SettlementKind, jobs []bulk.Job) []bulk.Settlement {
	list := make([]bulk.Settlement, len(jobs))
	for i, j := range jobs {
		list[i] = bulk.Settlement{Lease: j.Lease, Kind: kind, LeaseFor: 30 * time.Second}
	}
	return list
}

// action returns an action, and checks that its counts add up.
func action(t testing.TB, s *Store, id string) bulk.Action {
	t.Helper()
	a, err := s.Action(t.Context(), id)
	if err != nil {
		t.Fatal(err)
	}
	if sum := a.Pending + a.Ready + a.NonReadyTotal() + a.InFlight + a.Succeeded + a.Failed + a.Canceled; sum != a.Received {
		t.Errorf("the counts of %s add up to %d of %d: %+v", id, sum, a.Received, a.Counts)
	}
	return a
}

// recovered repeats call until it succeeds. Earlier errors must be
// bulk.ErrUnavailable.
func recovered(t testing.TB, call func() error) {
	t.Helper()
	until.Succeeds(t, "the store works again", func() error {
		err := call()
		if err != nil && !errors.Is(err, bulk.ErrUnavailable) {
			t.Fatalf("error is %v, want bulk.ErrUnavailable until it works", err)
		}
		return err
	})
}

// run starts an engine on a store, and stops it when the test ends.
func run(t testing.TB, s *Store, config bulk.Config, mux *bulk.Mux) *engine.Engine {
	t.Helper()
	engine, err := engine.New(s, mux, config, engine.WithLogger(quiet))
	if err != nil {
		t.Fatal(err)
	}
	if err := engine.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := engine.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return engine
}

// completed waits until an action is completed, with each of its jobs counted once.
func completed(t testing.TB, s *Store, id string, jobs int64) {
	t.Helper()
	var a bulk.Action
	until.Succeeds(t, id, func() (err error) {
		if a, err = s.Action(t.Context(), id); err == nil && a.Status != bulk.Completed {
			err = fmt.Errorf("it is %s: %+v", a.Status, a.Counts)
		}
		return err
	})
	if a.Succeeded != jobs || a.Received != jobs || a.Failed+a.Canceled != 0 {
		t.Errorf("%s has completed with %+v, want %d jobs", id, a.Counts, jobs)
	}
}
