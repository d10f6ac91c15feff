package natsstore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
)

// put puts a value, whatever becomes of single attempts: after one that is uncertain, Get
// waits until its outcome is known.
func put(t *testing.T, m topic.Meta, key, value string, revision uint64) uint64 {
	t.Helper()
	until.Succeeds(t, "put key "+key, func() error {
		next, err := m.Put(t.Context(), key, []byte(value), revision)
		if err == nil {
			revision = next
			return nil
		}
		item, getErr := m.Get(t.Context(), key)
		switch {
		case getErr == nil && item.Revision != revision && string(item.Value) == value:
			revision = item.Revision
			return nil
		case errors.Is(err, topic.ErrConflict), errors.Is(err, topic.ErrClosed):
			t.Fatalf("put key %s: %v", key, err)
		}
		return errors.Join(err, getErr)
	})
	return revision
}

// remove deletes a key, whatever becomes of single attempts.
func remove(t *testing.T, m topic.Meta, key string, revision uint64) {
	t.Helper()
	until.Succeeds(t, "delete key "+key, func() error {
		err := m.Delete(t.Context(), key, revision)
		if errors.Is(err, topic.ErrNotFound) { // an attempt that was not answered in time
			err = nil
		}
		return err
	})
}

// churn sets 20 keys five times each and deletes half of them.
func churn(t *testing.T, m topic.Meta) (want map[string]topic.Item) {
	t.Helper()
	want = map[string]topic.Item{}
	for i := range 20 {
		key := fmt.Sprint("key", i)
		revision := uint64(0)
		for value := range 5 {
			revision = put(t, m, key, fmt.Sprint(value), revision)
		}
		if i%2 == 1 {
			want[key] = topic.Item{Key: key, Value: []byte("4"), Revision: revision}
		} else {
			remove(t, m, key, revision)
		}
	}
	return want
}

func wantItems(t *testing.T, m topic.Meta, want map[string]topic.Item) {
	t.Helper()
	items, err := m.List(t.Context(), "")
	if err != nil || len(items) != len(want) {
		t.Fatalf("%d keys, want %d: %v", len(items), len(want), err)
	}
	for _, item := range items {
		if is := want[item.Key]; string(item.Value) != string(is.Value) || item.Revision != is.Revision {
			t.Fatalf("%+v, want %+v", item, is)
		}
	}
}

// waitForEntries waits until the metadata has fewer than most entries.
func waitForEntries(t *testing.T, m *meta, most uint64) {
	t.Helper()
	until.Succeeds(t, "the metadata is cleaned", func() error {
		first, last, err := m.log.Ends(t.Context())
		if err == nil && last-first >= most {
			err = fmt.Errorf("the engine keeps entries %d to %d, want at most %d", first, last, most)
		}
		return err
	})
}

// TestCleaning checks that the engine removes superseded and deleted values, and no others.
func TestCleaning(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir)
	CleanAtOnce(s)
	want := churn(t, s.meta)
	wantItems(t, s.meta, want)
	waitForEntries(t, s.meta, 60)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	wantItems(t, openAt(t, dir).meta, want)
}

func openAt(t *testing.T, dir string) *Store {
	t.Helper()
	s, err := Open(dir, Options{Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// TestEntriesThatStayedDoNotCount cleans without removing entries, as if the power had failed
// before the removal was durable, and then removes some.
func TestEntriesThatStayedDoNotCount(t *testing.T) {
	dir := t.TempDir()
	s := openAt(t, dir)
	s.meta.mu.Lock()
	s.meta.trimming = true
	s.meta.mu.Unlock()
	CleanAtOnce(s)
	want := churn(t, s.meta)
	first, last, err := s.meta.log.Ends(t.Context())
	if err != nil || first != 1 || last < 113 {
		t.Fatalf("the log has entries %d to %d: %v", first, last, err)
	}
	if err := s.meta.log.Trim(t.Context(), 20); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = openAt(t, dir)
	wantItems(t, s.meta, want)
	waitForEntries(t, s.meta, 60)
}

// TestOthersWriteToo appends to the log of the metadata as another node would.
func TestOthersWriteToo(t *testing.T) {
	s := openStore(t, Options{})
	mine, theirs := put(t, s.meta, "mine", "1", 0), put(t, s.meta, "theirs", "1", 0)
	s.mu.Lock()
	other := s.register("of another", metaSubject, s.meta.log.stream)
	s.mu.Unlock()
	data := appendHead(nil, changesHead{From: 1, Bytes: 100})
	data = appendChange(data, stored{Key: "theirs", Value: []byte("2")})
	outcome := make(chan error, 1)
	other.Append(topic.Entry{Sequence: 3, Data: data}, func(err error) { outcome <- err })
	if err := <-outcome; err != nil {
		t.Fatal(err)
	}
	if _, err := s.meta.Put(t.Context(), "theirs", nil, theirs); !errors.Is(err, topic.ErrConflict) {
		t.Fatalf("a put over what another has set: %v, want ErrConflict", err)
	}
	wantItems(t, s.meta, map[string]topic.Item{
		"mine": {Value: []byte("1"), Revision: mine}, "theirs": {Value: []byte("2"), Revision: 3},
	})
	put(t, s.meta, "mine", "2", mine)
	if got := put(t, s.meta, "theirs", "3", 3); got != 5 {
		t.Fatalf("the revision is %d, want 5", got)
	}
}

// waitForEnd waits until a log ends at an entry.
func waitForEnd(t *testing.T, l *log, want uint64) {
	t.Helper()
	until.Succeeds(t, "the log's end", func() error {
		_, last, err := l.Ends(t.Context())
		if err == nil && last != want {
			err = fmt.Errorf("the log ends at %d, want %d", last, want)
		}
		return err
	})
}

// TestPutWithoutAnswer drops the answer to a put. Later reads see the put.
func TestPutWithoutAnswer(t *testing.T) {
	t.Parallel()
	s := openStore(t, Options{})
	first := put(t, s.meta, "key", "1", 0)
	s.mu.Lock()
	delete(s.tokens, s.meta.log.token)
	s.mu.Unlock()
	outcome := make(chan error, 1)
	go func() {
		_, err := s.meta.Put(t.Context(), "key", []byte("2"), first)
		outcome <- err
	}()
	waitForEnd(t, s.meta.log, first+1)
	s.meta.log.abandon(topic.ErrUncertain) // as if Options.Timeout was over
	if err := <-outcome; !errors.Is(err, topic.ErrUncertain) {
		t.Fatalf("put: %v, want ErrUncertain", err)
	}
	item, err := s.meta.Get(t.Context(), "key")
	if err != nil || string(item.Value) != "2" || item.Revision != first+1 {
		t.Fatalf("key is %+v: %v", item, err)
	}
	s.mu.Lock()
	s.tokens[s.meta.log.token] = s.meta.log
	s.mu.Unlock()
	put(t, s.meta, "key", "3", item.Revision)
}

// TestPutThatWaitsIsWithdrawn ends the context of a put that waits behind one without an
// answer. The second is never written.
func TestPutThatWaitsIsWithdrawn(t *testing.T) {
	s := openStore(t, Options{Timeout: time.Minute})
	s.mu.Lock()
	delete(s.tokens, s.meta.log.token)
	s.mu.Unlock()
	outcome := make(chan error, 1)
	go func() {
		_, err := s.meta.Put(t.Context(), "first", nil, 0)
		outcome <- err
	}()
	waitForEnd(t, s.meta.log, 1)
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	_, err := s.meta.Put(ctx, "second", nil, 0)
	if !errors.Is(err, context.DeadlineExceeded) || errors.Is(err, topic.ErrUncertain) {
		t.Fatalf("put: %v, want that it was not written", err)
	}
	s.meta.log.abandon(topic.ErrUncertain) // as if Options.Timeout was over
	if err := <-outcome; !errors.Is(err, topic.ErrUncertain) {
		t.Fatalf("put: %v, want ErrUncertain", err)
	}
	wantItems(t, s.meta, map[string]topic.Item{"first": {Revision: 1}})
}

// TestDecisions decides on changes of one key that arrive together.
func TestDecisions(t *testing.T) {
	put, remove := stored{Key: "key"}, stored{Key: "key", Delete: true}
	other := stored{Key: "other"}
	guard := func(revision uint64) []topic.Guard { return []topic.Guard{{Key: "key", Revision: revision}} }
	type step struct {
		change stored
		expect uint64
		want   error
		guards []topic.Guard
	}
	for name, steps := range map[string][]step{
		"two that set":                {{change: put, expect: 7}, {change: put, expect: 7, want: topic.ErrConflict}},
		"deleted, then set":           {{change: remove, expect: 7}, {change: put, expect: 7, want: topic.ErrConflict}, {change: put, expect: 0}, {change: put, expect: 0, want: topic.ErrConflict}},
		"deleted twice":               {{change: remove, expect: 7}, {change: remove, expect: 7, want: topic.ErrNotFound}, {change: remove, expect: 0, want: topic.ErrNotFound}},
		"set, then deleted":           {{change: put, expect: 7}, {change: remove, expect: 7, want: topic.ErrConflict}, {change: remove, expect: 8, want: topic.ErrConflict}, {change: remove, expect: 0, want: topic.ErrConflict}},
		"wrong, then right":           {{change: put, expect: 0, want: topic.ErrConflict}, {change: remove, expect: 8, want: topic.ErrConflict}, {change: put, expect: 7}},
		"what the revision guess":     {{change: put, expect: 7}, {change: put, expect: 10, want: topic.ErrConflict}},
		"guarded by what is there":    {{change: other, guards: guard(7)}},
		"guarded by what was there":   {{change: other, guards: guard(6), want: topic.ErrConflict}},
		"guarded by what is set":      {{change: put, expect: 7}, {change: other, guards: guard(7), want: topic.ErrConflict}},
		"guarded by what is set then": {{change: put, expect: 7}, {change: other, guards: guard(10), want: topic.ErrConflict}},
		"guarded by what is deleted":  {{change: remove, expect: 7}, {change: other, guards: guard(0)}},
		"set after it was a guard":    {{change: other, guards: guard(7)}, {change: put, expect: 7}},
	} {
		t.Run(name, func(t *testing.T) {
			state := metaState{items: newMetaItems(), last: 9, from: 1}
			state.items.ReplaceOrInsert("key", metaItem{revision: 7, at: 7})
			d := state.decide(nil, changesHead{From: 1})
			for i, step := range steps {
				if err := d.add(step.change, step.expect, step.guards...); !errors.Is(err, step.want) {
					t.Errorf("step %d: %v, want %v", i, err, step.want)
				}
			}
		})
	}
}

// TestMetadataThatCannotBeRead opens metadata whose last entry is invalid.
func TestMetadataThatCannotBeRead(t *testing.T) {
	for name, data := range map[string][]byte{
		"nothing":          {},
		"another format":   {metaFormat + 1, 1, 0},
		"no first entry":   appendHead(nil, changesHead{From: 0}),
		"begins after end": appendHead(nil, changesHead{From: 2}),
		"cut off":          appendHead(nil, changesHead{From: 1})[:2],
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			s := openAt(t, dir)
			outcome := make(chan error, 1)
			s.meta.log.Append(topic.Entry{Sequence: 1, Data: data}, func(err error) { outcome <- err })
			if err := errors.Join(<-outcome, s.Close()); err != nil {
				t.Fatal(err)
			}
			if _, err := Open(dir, Options{Logger: slog.New(slog.DiscardHandler)}); !errors.Is(err, errChanges) {
				t.Fatalf("open: %v, want errChanges", err)
			}
		})
	}
}
