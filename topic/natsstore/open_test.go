package natsstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/natsstore"
)

// openFor opens a store that the test closes at its end.
func openFor(t *testing.T, dir string, options natsstore.Options) *natsstore.Store {
	t.Helper()
	s := open(t, dir, options)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func openLog(t *testing.T, s topic.Store, name string) topic.Log {
	t.Helper()
	l, err := s.OpenLog(t.Context(), name, []int32{1})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// appendOne appends an entry and returns its outcome.
func appendOne(l topic.Log, sequence uint64, size int) error {
	outcome := make(chan error, 1)
	l.Append(topic.Entry{Sequence: sequence, Data: make([]byte, size)}, func(err error) { outcome <- err })
	return <-outcome
}

func wantError(t *testing.T, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("error is %v, want %v", err, want)
	}
}

func TestOneStoreHasADirectory(t *testing.T) {
	dir := t.TempDir()
	s := openFor(t, dir, natsstore.Options{})
	_, err := natsstore.Open(dir, natsstore.Options{})
	wantError(t, err, natsstore.ErrInUse)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	openFor(t, dir, natsstore.Options{})
}

func TestForeignDirectoriesAreRefused(t *testing.T) {
	for name, c := range map[string]struct{ file, text, found string }{
		"of a cluster":    {"FORMAT", "sluice topic, cluster, format 1\n", "sluice topic, cluster, format 1"},
		"of a newer one":  {"FORMAT", "sluice topic, standalone, format 2\n", "sluice topic, standalone, format 2"},
		"with no mark":    {"jetstream.conf", "port: 4222", ""},
		"with half of it": {"FORMAT", "sluice topic", "sluice topic"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			if err := os.WriteFile(filepath.Join(dir, c.file), []byte(c.text), 0o600); err != nil {
				t.Fatal(err)
			}
			_, err := natsstore.Open(dir, natsstore.Options{})
			var format *natsstore.FormatError
			if !errors.As(err, &format) || format.Found != c.found || format.Dir != dir {
				t.Fatalf("open: %v, want a FormatError that found %q", err, c.found)
			}
			if left, err := os.ReadFile(filepath.Join(dir, c.file)); err != nil || string(left) != c.text {
				t.Fatalf("%s is %q now: %v", c.file, left, err)
			}
			if _, err := os.Stat(filepath.Join(dir, "jetstream")); err == nil {
				t.Fatal("the engine was started there")
			}
		})
	}
}

// TestAnEngineThatCannotStart has a file where the engine wants a directory.
func TestAnEngineThatCannotStart(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{"FORMAT": "sluice topic, standalone, format 1\n", "jetstream": ""} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	_, err := natsstore.Open(dir, natsstore.Options{Logger: slog.New(slog.DiscardHandler)})
	if err == nil || !strings.Contains(err.Error(), "not a directory") {
		t.Fatalf("open: %v, want the engine's reason", err)
	}
	if err := os.Remove(filepath.Join(dir, "jetstream")); err != nil {
		t.Fatal(err)
	}
	openFor(t, dir, natsstore.Options{})
}

func TestOptionsAreChecked(t *testing.T) {
	for _, options := range []natsstore.Options{{SyncInterval: -1}, {Timeout: -1}, {MaxBytes: -1}} {
		if s, err := natsstore.Open(t.TempDir(), options); err == nil {
			t.Errorf("%+v is taken", options)
			s.Close()
		}
	}
}

func TestCloseWaitsForAppends(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, natsstore.Options{})
	l := openLog(t, s, "log")
	errs := make(chan error, 200)
	for sequence := uint64(1); sequence <= 200; sequence++ {
		l.Append(topic.Entry{Sequence: sequence, Data: make([]byte, 500)}, func(err error) { errs <- err })
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if len(errs) != 200 {
		t.Fatalf("%d of 200 appends are reported when the store is closed", len(errs))
	}
	for range 200 {
		if err := <-errs; err != nil {
			t.Fatal(err)
		}
	}
	if _, last, err := openLog(t, openFor(t, dir, natsstore.Options{}), "log").Ends(t.Context()); err != nil || last != 200 {
		t.Fatalf("the log ends at %d: %v", last, err)
	}
}

func TestAClosedStoreSaysSo(t *testing.T) {
	s := open(t, t.TempDir(), natsstore.Options{})
	l := openLog(t, s, "log")
	for range 2 {
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	ctx, m := t.Context(), s.Meta()
	_, readErr := l.Read(ctx, 1, 1)
	_, _, endsErr := l.Ends(ctx)
	_, getErr := m.Get(ctx, "key")
	_, putErr := m.Put(ctx, "key", nil, 0)
	_, listErr := m.List(ctx, "")
	for call, err := range map[string]error{
		"append": appendOne(l, 1, 1), "read": readErr, "ends": endsErr, "trim": l.Trim(ctx, 5), "wait": l.Wait(ctx, 5),
		"get": getErr, "put": putErr, "delete": m.Delete(ctx, "key", 1), "list": listErr, "delete log": s.DeleteLog(ctx, "log"),
	} {
		if !errors.Is(err, topic.ErrClosed) {
			t.Errorf("%s: %v, want ErrClosed", call, err)
		}
	}
}

func TestBoundsAreChecked(t *testing.T) {
	s := openFor(t, t.TempDir(), natsstore.Options{})
	for _, name := range []string{"", "a.b", "a b", "a/b", "ä", "*", ">", strings.Repeat("x", 201)} {
		if _, err := s.OpenLog(t.Context(), name, []int32{1}); err == nil {
			t.Errorf("log name %q is taken", name)
		}
	}
	l := openLog(t, s, "log")
	var large *natsstore.EntryTooLargeError
	if err := appendOne(l, 1, natsstore.MaxEntryBytes+1); !errors.As(err, &large) || large.Bytes != natsstore.MaxEntryBytes+1 {
		t.Errorf("an entry that is too large: %v", err)
	}
	if err := appendOne(l, 1, natsstore.MaxEntryBytes); err != nil {
		t.Errorf("the largest entry: %v", err)
	}
	m := s.Meta()
	if _, err := m.Put(t.Context(), "key", make([]byte, 4<<20+1), 0); err == nil {
		t.Error("a value of more than 4 MiB is taken")
	}
	if _, err := m.Put(t.Context(), strings.Repeat("k", 601), nil, 0); err == nil {
		t.Error("a key of 601 bytes is taken")
	}
}

// TestAFullDiskIsNotWrittenTo has a reserve larger than any disk.
func TestAFullDiskIsNotWrittenTo(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, natsstore.Options{DiskReserve: 1 << 60})
	l := openLog(t, s, "log")
	wantError(t, appendOne(l, 1, 1), topic.ErrFull)
	_, err := s.Meta().Put(t.Context(), "key", nil, 0)
	wantError(t, err, topic.ErrFull)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	l = openLog(t, openFor(t, dir, natsstore.Options{DiskReserve: -1}), "log")
	if err := appendOne(l, 1, 1); err != nil {
		t.Fatal(err)
	}
}

// Below the reserve, but above half of it, records and topics can be removed.
func TestAFullDiskCanBeFreed(t *testing.T) {
	dir := t.TempDir()
	total, free, err := natsstore.VolumeOf(dir)
	if err != nil {
		t.Fatal(err)
	}
	s := openFor(t, dir, natsstore.Options{DiskReserve: int64(free) * 3 / 2})
	if size, left, err := s.Volume(); size != int64(total) || left <= 0 || left > size || err != nil {
		t.Errorf("the disk has %d bytes, %d of them free, %v; want %d", size, left, err, total)
	}
	l := openLog(t, s, "log")
	wantError(t, appendOne(l, 1, 1), topic.ErrFull)
	if err := appendOne(l, 1, 0); err != nil {
		t.Errorf("an entry without data: %v", err)
	}
	if _, err := s.Meta().Put(t.Context(), "key", []byte("value"), 0); err != nil {
		t.Errorf("metadata: %v", err)
	}
	if err := s.DeleteLog(t.Context(), "log"); err != nil {
		t.Error(err)
	}
}

func TestAFullStoreTakesMoreAfterATrim(t *testing.T) {
	l := openLog(t, openFor(t, t.TempDir(), natsstore.Options{MaxBytes: 1 << 20}), "log")
	sequence := uint64(0)
	var err error
	for sequence < 100 && err == nil {
		sequence++
		err = appendOne(l, sequence, 100_000)
	}
	wantError(t, err, topic.ErrFull)
	if sequence < 5 {
		t.Fatalf("full at entry %d of 100,000 bytes", sequence)
	}
	if err := l.Trim(t.Context(), sequence-2); err != nil {
		t.Fatal(err)
	}
	if err := appendOne(l, sequence, 100_000); err != nil {
		t.Fatal(err)
	}
}

// TestListOfManyKeys lists more than one page.
func TestListOfManyKeys(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, natsstore.Options{SyncInterval: time.Minute})
	const keys = 5_000
	for i := range keys {
		if _, err := s.Meta().Put(t.Context(), fmt.Sprintf("groups/%05d", i), []byte("value"), 0); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		items, err := s.Meta().List(t.Context(), "groups/")
		if err != nil || len(items) != keys {
			t.Fatalf("%d items: %v", len(items), err)
		}
		for i, item := range items {
			if want := fmt.Sprintf("groups/%05d", i); item.Key != want {
				t.Fatalf("item %d is %q, want %q", i, item.Key, want)
			}
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		s = openFor(t, dir, natsstore.Options{})
	}
}

func TestAPutWhoseContextIsOverIsNotSent(t *testing.T) {
	s := openFor(t, t.TempDir(), natsstore.Options{})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := s.Meta().Put(ctx, "key", nil, 0)
	wantError(t, err, context.Canceled)
	_, err = s.Meta().Get(t.Context(), "key")
	wantError(t, err, topic.ErrNotFound)
}

// TestADeletedLogIsGoneWhileAnotherIsRemoved deletes a log while the engine still removes the
// files of an earlier log of the same name.
func TestADeletedLogIsGoneWhileAnotherIsRemoved(t *testing.T) {
	dir := t.TempDir()
	s := openFor(t, dir, natsstore.Options{})
	l := openLog(t, s, "log")
	wantError(t, appendOne(l, 1, 100), nil)
	earlier := filepath.Join(dir, "jetstream", "$G", "streams", ".log-log", "msgs")
	if err := os.MkdirAll(earlier, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := s.DeleteLog(t.Context(), "log"); err != nil {
		t.Fatal(err)
	}
	if _, last, err := openLog(t, s, "log").Ends(t.Context()); last != 0 || err != nil {
		t.Fatalf("the new log ends at %d: %v", last, err)
	}
}

// A stream that is missing from the directory is an error, and not made again, empty.
func TestMissingStreamsAreErrors(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, natsstore.Options{})
	for _, name := range []string{"lost", "kept"} {
		if err := appendOne(openLog(t, s, name), 1, 10); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	remove(t, dir, "log-lost")
	s = open(t, dir, natsstore.Options{})
	if _, err := s.OpenLog(t.Context(), "lost", nil); !errors.Is(err, topic.ErrNoLog) || !strings.Contains(err.Error(), "lost") {
		t.Errorf("a lost log: %v, want an ErrNoLog that names it", err)
	}
	if _, err := s.OpenLog(t.Context(), "kept", nil); err != nil {
		t.Errorf("another: %v", err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	remove(t, dir, "meta")
	_, err := natsstore.Open(dir, natsstore.Options{})
	var missing *natsstore.MetaMissingError
	if !errors.As(err, &missing) || missing.Logs != 1 || missing.Example != "log-kept" {
		t.Errorf("lost metadata: %v, want a MetaMissingError of one log", err)
	}
}

// remove removes the files of a stream.
func remove(t *testing.T, dir, stream string) {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(dir, "jetstream", "*", "streams", stream))
	if err != nil || len(found) != 1 {
		t.Fatalf("%v, %v: want the directory of %s", found, err, stream)
	}
	if err := os.RemoveAll(found[0]); err != nil {
		t.Fatal(err)
	}
}
