package demo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/examples"
	"github.com/sluice-project/sluice/internal/cli/bulk/local"
	"github.com/sluice-project/sluice/internal/cli/bulk/localtest"
	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/exit"
)

// fakeDemo simulates a demo.
type fakeDemo struct {
	*localtest.Fake
	config  bulk.Config
	changes []bulk.SettingsChange
	address string
	stopped []string
	// lose is how many jobs the target forgets.
	lose  int64
	kafka string
	// corrupt changes the events of the topic.
	corrupt func([]eventAt) []eventAt
	// uncommitted is how many events the group never commits.
	uncommitted int64
	// rooms are the simulated rooms.
	rooms *playedRooms
}

func (f *fakeDemo) Brokers() string { return f.kafka }

func (f *fakeDemo) Tail(context.Context, string, string) (eventTail, error) {
	return &fakeTail{demo: f}, nil
}

func (f *fakeDemo) Rooms() *demoRooms {
	return &demoRooms{gates: map[string]string{demoShopRoom: "http://127.0.0.1:8000"}}
}

// fakeTail has all events at once, when all actions have ended.
type fakeTail struct {
	demo      *fakeDemo
	read      bool
	committed int64
}

// events returns the events of all actions, over several partitions.
func (f *fakeDemo) events() (events []eventAt) {
	f.Mu.Lock()
	defer f.Mu.Unlock()
	for _, a := range f.All {
		if !local.Ended(a) {
			return nil
		}
	}
	// Actions are created concurrently, in any order.
	byTenant := slices.SortedFunc(slices.Values(f.All), func(a, b *bulk.Action) int { return strings.Compare(a.Tenant, b.Tenant) })
	for n, a := range byTenant {
		offset := int64(0)
		add := func(eventType, subject string, at time.Time, data string) {
			value := fmt.Sprintf(`{"id":"%d-%d","type":%q,"subject":%q,"partitionkey":%q,"tenant":%q,"time":%q,"data":%s}`,
				n, offset, eventType, subject, a.ID, a.Tenant, at.Format(time.RFC3339Nano), data)
			events = append(events, eventAt{int32(n), offset, []byte(value)})
			offset++
		}
		counts := fmt.Sprintf(`{"succeeded":%d,"failed":%d}`, a.Succeeded, a.Failed)
		for _, eventType := range []string{bulk.ActionCreated, bulk.ActionDispatched, bulk.ActionRunning} {
			add(eventType, a.ID, a.CreatedAt, "{}")
		}
		for index := int64(0); a.Tenant == "shop 4" && index < a.Done(); index++ {
			eventType := bulk.JobSucceeded
			if (index+1)%f.FailEvery == 0 {
				eventType = bulk.JobFailed
			}
			add(eventType, bulk.JobID(a.ID, index), a.FinishedAt, `{"attempts":1}`)
		}
		add(bulk.ActionAggregating, a.ID, a.FinishedAt, counts)
		add(bulk.ActionCompleted, a.ID, a.FinishedAt, counts)
	}
	if f.corrupt != nil {
		events = f.corrupt(events)
	}
	return events
}

func (t *fakeTail) Next(ctx context.Context) ([]eventAt, error) {
	for {
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return nil, ctx.Err()
		}
		if events := t.demo.events(); !t.read && len(events) > 0 {
			t.read = true
			return events, nil
		}
	}
}

func (t *fakeTail) Commit(context.Context) error {
	t.demo.Mu.Lock()
	defer t.demo.Mu.Unlock()
	t.committed = 1
	return nil
}

func (t *fakeTail) Behind(context.Context) (behind, all int64, err error) {
	all = int64(len(t.demo.events()))
	t.demo.Mu.Lock()
	defer t.demo.Mu.Unlock()
	if t.committed == 0 {
		return all, all, nil
	}
	return t.demo.uncommitted, all, nil
}

func (t *fakeTail) Close() { t.demo.stopped = append(t.demo.stopped, "events") }

func newFakeDemo() *fakeDemo {
	f := &fakeDemo{Fake: localtest.New(60), rooms: newPlayedRooms()}
	f.FailEvery, f.Throttles = 40, 0.25
	f.Index, f.Windows, f.Waits = 0.9987, 4, true
	f.Result = func(a *bulk.Action, payloads [][]byte) map[string]any {
		sum := &exactSum{}
		for i, payload := range payloads {
			var row struct{ Amount string }
			if err := json.Unmarshal(payload, &row); err != nil {
				panic(err)
			}
			if int64(i+1)%f.FailEvery == 0 {
				continue
			}
			if err := sum.Add(row.Amount); err != nil {
				panic(err)
			}
		}
		return map[string]any{"count": a.Succeeded, "sum:amount": sum.String()}
	}
	return f
}

func (f *fakeDemo) Set(_ context.Context, change bulk.SettingsChange) error {
	limits := *change.Target
	change.Target = &limits
	f.changes = append(f.changes, change)
	return nil
}

func (f *fakeDemo) Listen(_ context.Context, address string) (string, func(context.Context) error, error) {
	if f.address == "" {
		return "", nil, errors.New("address already in use")
	}
	return f.address, func(context.Context) error { f.stopped = append(f.stopped, "http"); return nil }, nil
}

func (f *fakeDemo) Close() error {
	f.stopped = append(f.stopped, "engine")
	return f.Fake.Close()
}

// parts has 300 rows of 5 tenants.
func (f *fakeDemo) parts() demoParts {
	var file strings.Builder
	file.WriteString("shop,amount\n")
	for i := range 300 {
		fmt.Fprintf(&file, "shop %d,%d.%04d\n", min(i%7, 4), i-100, i)
	}
	return demoParts{
		open: func(_ context.Context, _ string, config bulk.Config, at demoAddresses) (demoEngine, error) {
			f.config, f.kafka = config, at.Kafka
			return f, nil
		},
		target: func(int) (*demoTarget, error) {
			done := func() (n int64) {
				for _, a := range f.All {
					n += a.Succeeded
				}
				return n - f.lose
			}
			stop := func(context.Context) error { f.stopped = append(f.stopped, "target"); return nil }
			return &demoTarget{URL: "http://127.0.0.1:9999/", Stop: stop, Done: done}, nil
		},
		file: []byte(file.String()), column: "shop", sum: "amount", eventsTenant: "shop 4",
		rooms: func(ctx context.Context, _ *demo, _ demoEngine) (*roomsResult, error) {
			return f.rooms.result(), rest(ctx, 10*time.Second)
		},
	}
}

func (f *fakeDemo) run(ctx context.Context, args ...string) *clitest.Ran {
	return clitest.Execute(ctx, demoCommand(f.parts()), "", args...)
}

func TestDemoGolden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDemo()
		r := f.run(t.Context(), "--seconds", "6", "--top", "2")
		if r.Code() != 0 {
			t.Errorf("exit code %d: %v", r.Code(), r.Failure)
		}
		if len(f.changes) != 2 || f.changes[1].Target.RequestsPerSecond != 53 || f.changes[1].Target.URLPrefix != f.changes[0].Target.URLPrefix || f.config.RequestsPerSecond != 56 {
			t.Errorf("settings %+v of a limit of %g, want two of the target, the second 53 of 56", f.changes, f.config.RequestsPerSecond)
		}
		if fmt.Sprint(f.stopped) != "[events engine target]" {
			t.Errorf("stopped %v, want the reader of events, the engine, and then its target", f.stopped)
		}
		clitest.Golden(t, "demo", r.Stdout+"# standard error\n"+r.Stderr)
	})
}

func TestDemoJSON(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newFakeDemo().run(t.Context(), "--seconds", "6", "--json")
		var got demoJSON
		if err := json.Unmarshal([]byte(r.Stdout), &got); err != nil || r.Code() != 0 || r.Stderr != "" || strings.Count(r.Stdout, "\n") != 1 {
			t.Fatalf("want one line of JSON (%v, %v): %s%s", err, r.Failure, r.Stdout, r.Stderr)
		}
		if got.Actions != 5 || got.Jobs != 300 || got.Failed != 7 || got.InputSum != "14853.4950" || got.Error != "" ||
			string(got.Aggregates["sum:amount"]) == "" || got.IdealMS != 5660 ||
			got.Events != 5*5+128 || got.Committed != got.Events ||
			*got.Rooms != (roomsJSON{
				Visitors: 13, Capacity: 2, MostInside: 2, KeptAsking: 11, CameBack: 1, Abandoned: 1,
				WaitMedianMS: 200, WaitP95MS: 380, Estimates: 3, EstimatesHeld: 1, Events: 39, Committed: 39, TookMS: 8000,
			}) {
			t.Errorf("got %s", r.Stdout)
		}
	})
}

func TestDemoFindsWhatIsLost(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDemo()
		f.lose = 1
		r := f.run(t.Context(), "--seconds", "6")
		if r.Code() != 1 || !strings.Contains(r.Failure.Error(), "the target did 292 jobs, 293 succeeded") || !strings.Contains(r.Stdout, "✗ did 292 jobs") {
			t.Errorf("exit code %d: %v\n%s", r.Code(), r.Failure, r.Stdout)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDemo()
		right := f.Result
		f.Result = func(a *bulk.Action, payloads [][]byte) map[string]any {
			result := right(a, payloads)
			if a.Tenant == "shop 3" {
				result["sum:amount"] = "0.0001"
			}
			return result
		}
		r := f.run(t.Context(), "--seconds", "6", "--json")
		if r.Code() != 1 || !strings.Contains(r.Failure.Error(), "the file has 14853.4950") || !strings.Contains(r.Stdout, `"error":"the sums of`) {
			t.Errorf("exit code %d: %v\n%s", r.Code(), r.Failure, r.Stdout)
		}
	})
}

func TestDemoFindsWhatIsWrongWithEvents(t *testing.T) {
	for _, c := range []struct {
		name, want string
		corrupt    func([]eventAt) []eventAt
	}{
		{"lost state", "have the states [created running aggregating completed]", func(e []eventAt) []eventAt { return append(e[:1:1], e[2:]...) }},
		{"lost job", "but by the events 124 and 3", func(e []eventAt) []eventAt {
			at := slices.IndexFunc(e, func(e eventAt) bool { return strings.Contains(string(e.Value), bulk.JobSucceeded) })
			return append(e[:at:at], e[at+1:]...)
		}},
		{"twice", "event 0-0 came twice", func(e []eventAt) []eventAt { return append(e, e[0]) }},
		{"order", "have the states [dispatched created running", func(e []eventAt) []eventAt { e[0], e[1] = e[1], e[0]; return e }},
		{"junk", "the record at 9/7 is no event", func(e []eventAt) []eventAt { return append(e, eventAt{9, 7, []byte("junk")}) }},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeDemo()
				f.corrupt = c.corrupt
				r := f.run(t.Context(), "--seconds", "6")
				if r.Code() != 1 || !strings.Contains(r.Failure.Error(), c.want) || !strings.Contains(r.Stdout, "events      ✗ ") {
					t.Errorf("exit code %d: %v\n%s", r.Code(), r.Failure, r.Stdout)
				}
			})
		})
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDemo()
		f.uncommitted = 2
		r := f.run(t.Context(), "--seconds", "6")
		if r.Code() != 1 || !strings.Contains(r.Failure.Error(), "has committed 151 of 153 events") || !strings.Contains(r.Stdout, "committed   ✗ 151 of 153 events") {
			t.Errorf("exit code %d: %v\n%s", r.Code(), r.Failure, r.Stdout)
		}
	})
}

func TestBalance(t *testing.T) {
	balanced := func() *balance {
		b := &balance{Rows: 10, Received: 10, Succeeded: 8, Failed: 2, Letters: 2, TargetDone: 8}
		for sum, value := range map[*exactSum]string{&b.Input: "-1.50", &b.SucceededSum: "0.25", &b.FailedSum: "-1.75"} {
			if err := sum.Add(value); err != nil {
				t.Fatal(err)
			}
		}
		return b
	}
	if err := balanced().Wrong(); err != nil {
		t.Error(err)
	}
	for want, change := range map[string]func(b *balance){
		"10 rows, 9 jobs were received": func(b *balance) { b.Received-- },
		"7 succeeded and 2 failed":      func(b *balance) { b.Succeeded--; b.TargetDone-- },
		"3 dead letters are kept":       func(b *balance) { b.Letters++ },
		"the target did 9 jobs":         func(b *balance) { b.TargetDone++ },
		"make -1.49, the file has":      func(b *balance) { _ = b.FailedSum.Add("0.01") },
	} {
		b := balanced()
		change(b)
		if err := b.Wrong(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %s", err, want)
		}
	}
}

func TestDemoStays(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDemo()
		f.address = "127.0.0.1:8081"
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(time.Minute, interrupt)
		start := time.Now()
		r := f.run(ctx, "--seconds", "6", "--stay")
		if r.Code() != 0 || time.Since(start) != time.Minute {
			t.Errorf("exit code %d after %s: %v", r.Code(), time.Since(start), r.Failure)
		}
		if !strings.Contains(r.Stderr, "curl -s 'http://127.0.0.1:8081/v1/actions?tenant=TX'") ||
			!strings.Contains(r.Stderr, "--until-end --brokers 127.0.0.1:9092") ||
			!strings.Contains(r.Stderr, "open http://127.0.0.1:8000 in two browsers") {
			t.Errorf("it does not say what to try:\n%s", r.Stderr)
		}
		if fmt.Sprint(f.stopped) != "[events http engine target]" {
			t.Errorf("stopped %v, want the server first, then the engine, then its target", f.stopped)
		}
	})
}

func TestDemoInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeDemo()
		ctx, interrupt := context.WithCancel(t.Context())
		time.AfterFunc(2*time.Second, interrupt)
		r := f.run(ctx, "--seconds", "6")
		if r.Code() != exit.CodeInterrupted || !f.Fake.Stopped || !f.Closed {
			t.Errorf("exit code %d: %v", r.Code(), r.Failure)
		}
	})
}

func TestDemoRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		"--seconds: 4: want 5 to 3600":        {"--seconds", "4"},
		"--top: -1: want how many":            {"--top", "-1"},
		"--http: address already in use":      {"--stay"},
		`unknown command "extra" for "demo"`:  {"extra"},
		"unknown flag: --loud":                {"--loud"},
		`invalid argument "x" for "--seconds`: {"--seconds", "x"},
	} {
		r := newFakeDemo().run(t.Context(), args...)
		if r.Code() != exit.CodeUsage || !strings.Contains(r.Failure.Error(), want) {
			t.Errorf("demo %v: exit code %d: %v, want %s", args, r.Code(), r.Failure, want)
		}
	}
}

func TestSumColumn(t *testing.T) {
	sum, rows, err := sumColumn(examples.Zipcodes, "latitude")
	if err != nil || rows != 42049 || sum.String() != "1618853.645685" {
		t.Errorf("%d rows, sum %s, %v", rows, sum, err)
	}
	if _, _, err := sumColumn([]byte("a,b\n1,2\n"), "c"); err == nil || !strings.Contains(err.Error(), "it has a, b") {
		t.Errorf("a column that is not there: %v", err)
	}
	if _, _, err := sumColumn([]byte("a,b\n1,x\n"), "b"); err == nil || !strings.Contains(err.Error(), `"x" is not a decimal`) {
		t.Errorf("a value that is no number: %v", err)
	}
}

func TestRatesFor(t *testing.T) {
	if got := ratesFor(42049, 20); got != (demoRates{Target: 2214, Limit: 2303}) {
		t.Errorf("got %+v", got)
	}
}
