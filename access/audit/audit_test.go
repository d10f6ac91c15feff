package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/access"
)

var quiet = slog.New(slog.DiscardHandler)

// start starts a trail with a file of its own.
func start(t *testing.T, options Options) *Trail {
	t.Helper()
	options.MaxBytes, options.Keep, options.Logger = max(options.MaxBytes, 1<<20), max(options.Keep, 1), quiet
	trail := New(options)
	if err := trail.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	return trail
}

func stop(t *testing.T, trail *Trail) {
	t.Helper()
	if err := trail.Stop(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// lines returns the entries of a file; lines that are none are counted.
func lines(t *testing.T, path string) (entries []Entry, torn int) {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var e Entry
		if json.Unmarshal(line, &e) != nil {
			torn++
			continue
		}
		entries = append(entries, e)
	}
	return entries, torn
}

func operations(entries []Entry) (names []string) {
	for _, e := range entries {
		names = append(names, e.Operation)
	}
	return names
}

// The file has refusals and changes, between the start and the stop of the server, and neither reads nor traffic.
func TestWhatIsRecorded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "new", "audit.log")
	trail := start(t, Options{File: path, Node: "a", Settings: "hash"})
	who := &access.Principal{Name: "ci", ID: "id-1"}
	for _, right := range access.Rights() {
		trail.Record(right, Entry{Edge: HTTP, Operation: right.String(), Outcome: Allowed}.By(who))
	}
	trail.Record(access.Produce, Entry{Edge: Kafka, Operation: "Produce", Outcome: Refused}.By(who))
	trail.Record(access.Known, Entry{Edge: Kafka, Operation: "SaslAuthenticate", Outcome: Unauthenticated})
	stop(t, trail)
	got, _ := lines(t, path)
	want := []string{
		"start", "submit", "manage-bulk", "keep-room", "manage-rooms", "manage-topics", "manage-cluster", "backup", "manage-access",
		"Produce", "SaslAuthenticate", "stop",
	}
	if !slices.Equal(operations(got), want) {
		t.Errorf("got %q, want %q", operations(got), want)
	}
	for i, e := range got {
		if e.ID != fmt.Sprintf("%s-%d", got[0].Run(), i+1) || e.Node != "a" || e.Time.IsZero() || (e.Settings == "hash") != (i == 0) {
			t.Errorf("got %+v", e)
		}
	}
	if e := got[1]; e.Token != "ci" || e.TokenID != "id-1" || got[10].Token != "" {
		t.Errorf("got %+v and %+v", e, got[10])
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	var none *Trail
	none.Record(access.ManageAccess, Entry{}) // without a trail
}

// A line that a crash has torn stays alone, and nothing of before is lost.
func TestALineThatWasTorn(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	stop(t, start(t, Options{File: path}))
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, whole[:len(whole)-20], 0o600); err != nil {
		t.Fatal(err)
	}
	stop(t, start(t, Options{File: path}))
	got, torn := lines(t, path)
	if want := []string{"start", "start", "stop"}; !slices.Equal(operations(got), want) || torn != 1 {
		t.Errorf("got %q and %d that are torn, want %q", operations(got), torn, want)
	}
}

// There are so many files of such a size, and they have the last entries without a gap.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	const most = 20_000
	f := &file{path: filepath.Join(dir, "audit.log"), maxBytes: most, keep: 2}
	for i := range 500 {
		e := Entry{ID: fmt.Sprint("run-", i), Resources: []string{strings.Repeat("r", i)}}
		if err := f.write(t.Context(), []Entry{e}); err != nil {
			t.Fatal(err)
		}
		if i%100 == 99 { // the server starts again
			if err := f.close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	files, err := os.ReadDir(dir)
	if err != nil || len(files) != 3 {
		t.Fatalf("%d files, %v", len(files), err)
	}
	var all []Entry
	for n := 2; n >= 0; n-- {
		if info, err := os.Stat(f.name(n)); err != nil || info.Size() > most {
			t.Errorf("%v, %v", info.Size(), err)
		}
		got, _ := lines(t, f.name(n))
		all = append(all, got...)
	}
	for i, e := range all {
		if want := fmt.Sprint("run-", 500-len(all)+i); e.ID != want {
			t.Fatalf("entry %d is %s, want %s", i, e.ID, want)
		}
	}
}

// While entries cannot be written, the queue fills, nobody waits, and what does not fit is counted.
func TestAFullQueue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		trail := New(Options{Logger: quiet})
		var got []Entry
		var away atomic.Bool
		away.Store(true)
		trail.PublishTo("a topic", func(_ context.Context, entries []Entry) error {
			if away.Load() {
				return errors.New("away")
			}
			got = append(got, entries...)
			return nil
		})
		if err := trail.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the start is being written
		const more = 100
		for range QueueSize + more {
			trail.Record(access.ManageRooms, Entry{Edge: HTTP, Operation: "put-room", Outcome: Allowed})
		}
		away.Store(false)
		time.Sleep(2 * retryAfter)
		stop(t, trail)
		written, lost := 0, 0
		for _, e := range got {
			switch e.Operation {
			case "put-room":
				written++
			case "lost":
				lost += e.Count
			}
		}
		if written != QueueSize || lost != more {
			t.Errorf("%d were written and %d lost, want %d and %d", written, lost, QueueSize, more)
		}
	})
}

// Refusals of one address and name are counted after the first ones, those of others are not; and so many that nobody
// could tell them apart count together.
func TestRepeatedRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "audit.log")
		trail := start(t, Options{File: path})
		refuse := func(address, token string) {
			trail.Record(access.Known, Entry{Edge: HTTP, Operation: "x", Address: address, Token: token, Outcome: Refused})
		}
		for range 100 {
			refuse("192.0.2.1", "a")
			refuse("2001:db8::1", "")
		}
		refuse("2001:db8::2", "") // of the same network
		refuse("192.0.2.1", "b")
		time.Sleep(Window + time.Second)
		refuse("192.0.2.1", "a")
		stop(t, trail)
		got, _ := lines(t, path)
		counts := map[string]int{}
		for _, e := range got {
			if e.Operation == "x" {
				counts[e.Token+" "+e.Address] += max(1, e.Count)
			}
		}
		if counts["a 192.0.2.1"] != 101 || counts["b 192.0.2.1"] != 1 || counts[" 2001:db8::1"]+counts[" 2001:db8::2"] != 101 {
			t.Errorf("got %v", counts)
		}
		if want := 2 + 2*(Burst+1) + 2; len(got) != want { // start and stop; two that are repeated; two more
			t.Errorf("%d entries, want %d", len(got), want)
		}
		many := repeats{seen: map[sender]*repeated{}}
		for i := range 10 * MaxSenders {
			many.first(Entry{Address: fmt.Sprintf("10.0.%d.%d", i/256, i%256), Token: "t", TokenID: "t"})
		}
		counted := many.take()
		if len(counted) != 1 || counted[0].Count != 9*MaxSenders-Burst || counted[0].Address+counted[0].Token+counted[0].TokenID != "" {
			t.Errorf("got %+v", counted)
		}
	})
}

// Texts of requests are bounded, are lines of their own, and show no secret of a token.
func TestTextsOfRequests(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	trail := start(t, Options{File: path})
	const planted = "sluice_AbCdEfGhIjKlMnOpQrStUvWxYz0123456789-_abcde"
	names := []string{"/v1/tokens/" + planted, strings.Repeat("x", MaxText-10) + planted, "a\nb\xff"}
	for range 100 {
		names = append(names, strings.Repeat("long", 1000))
	}
	trail.Record(access.ManageAccess, Entry{Operation: planted, Resources: names, Outcome: Allowed})
	stop(t, trail)
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	got, torn := lines(t, path)
	if strings.Contains(string(text), "AbCdEfGh") || len(got) != 3 || torn != 0 {
		t.Fatalf("%s", text)
	}
	kept := got[1].Resources
	if len(kept) != MaxResources || kept[0] != "/v1/tokens/sluice_(hidden)" || kept[2] != "a\nb" || kept[MaxResources-1] != "and 96 more" || len(kept[3]) != MaxText {
		t.Errorf("got %q", kept)
	}
}

// The latest entries are in memory, the newest first, and no more than Kept.
func TestLatest(t *testing.T) {
	var none *Trail
	if got := none.Latest(); got != nil {
		t.Errorf("without a trail: %v", got)
	}
	trail := New(Options{Node: "n"})
	for i := range Kept + 50 {
		trail.Record(access.Submit, Entry{Edge: HTTP, Operation: fmt.Sprint("op ", i), Outcome: Allowed})
	}
	trail.Record(access.ReadBulk, Entry{Edge: HTTP, Operation: "read", Outcome: Allowed})
	latest := trail.Latest()
	if len(latest) != Kept || latest[0].Operation != fmt.Sprint("op ", Kept+49) || latest[Kept-1].Operation != "op 50" || latest[0].Node != "n" || latest[0].Time.IsZero() {
		t.Errorf("%d entries, from %+v to %+v", len(latest), latest[0], latest[len(latest)-1])
	}
}
