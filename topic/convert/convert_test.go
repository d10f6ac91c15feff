package convert_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"reflect"
	"testing"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/convert"
	"github.com/sluice-project/sluice/topic/filestore"
	"github.com/sluice-project/sluice/topic/natsstore"
)

var quiet = slog.New(slog.DiscardHandler)

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// source returns a store with logs that are full, trimmed, emptied, new and large, and with
// metadata that was changed and deleted.
func source(t *testing.T) *natsstore.Store {
	t.Helper()
	s, err := natsstore.Open(t.TempDir(), natsstore.Options{Logger: quiet})
	must(t, err)
	t.Cleanup(func() { must(t, s.Close()) })
	for name, log := range map[string]struct {
		first, entries, trim uint64
		size                 int
	}{"full": {1, 50, 0, 100}, "trimmed": {1, 50, 20, 100}, "emptied": {1, 50, 51, 100}, "new": {1, 0, 0, 0}, "made": {1000, 3, 0, 0}, "large": {1, 20, 0, 700_000}} {
		l, err := s.MakeLog(t.Context(), name, []int32{1}, log.first)
		must(t, err)
		for sequence := log.first; sequence < log.first+log.entries; sequence++ {
			done := make(chan error, 1)
			n := int64(sequence)
			l.Append(topic.Entry{
				Sequence: sequence, Data: make([]byte, log.size),
				Mark: topic.Mark{Base: n, Next: n + 1, Epoch: 3, MaxTimestamp: n, Bytes: n, Released: 7},
			}, func(err error) { done <- err })
			must(t, <-done)
		}
		must(t, l.Trim(t.Context(), log.trim))
	}
	for i := range 100 {
		key := fmt.Sprint("key/", i%40)
		item, err := s.Meta().Get(t.Context(), key)
		if err != nil && !errors.Is(err, topic.ErrNotFound) {
			t.Fatal(err)
		}
		_, err = s.Meta().Put(t.Context(), key, fmt.Append(nil, "value ", i), item.Revision)
		must(t, err)
	}
	item, err := s.Meta().Get(t.Context(), "key/7")
	must(t, err)
	must(t, s.Meta().Delete(t.Context(), "key/7", item.Revision))
	return s
}

// contents returns everything that is in a log.
func contents(t *testing.T, s topic.Store, name string) (first, last uint64, all []topic.Entry) {
	t.Helper()
	l, err := s.OpenLog(t.Context(), name, nil)
	must(t, err)
	first, last, err = l.Ends(t.Context())
	must(t, err)
	for next := first; next <= last; next++ {
		entry, err := topic.ReadEntry(t.Context(), l, next)
		must(t, err)
		entry.Block, entry.Sum = nil, 0 // not every log has them
		all = append(all, entry)
	}
	return first, last, all
}

// The copy has the same entries and items, over a restart; new revisions are above all old ones.
func TestRun(t *testing.T) {
	from, dir := source(t), t.TempDir()
	to, err := filestore.Open(dir, filestore.Options{Logger: quiet})
	must(t, err)
	result, err := convert.Run(t.Context(), from, to, &convert.Progress{})
	must(t, err)
	if result.Logs != 6 || result.Items != 39 || result.Entries != 50+31+3+20 {
		t.Errorf("the result is %+v", result)
	}
	must(t, to.Close())
	to, err = filestore.Open(dir, filestore.Options{Logger: quiet})
	must(t, err)
	defer func() { must(t, to.Close()) }()
	names, err := from.Logs(t.Context())
	must(t, err)
	for _, name := range names {
		first, last, want := contents(t, from, name)
		copiedFirst, copiedLast, got := contents(t, to, name)
		if copiedFirst != first || copiedLast != last || !reflect.DeepEqual(got, want) {
			t.Errorf("log %s has entries %d to %d, want %d to %d, or they differ", name, copiedFirst, copiedLast, first, last)
		}
	}
	want, err := from.Meta().List(t.Context(), "")
	must(t, err)
	got, err := to.Meta().List(t.Context(), "")
	must(t, err)
	if !reflect.DeepEqual(got, want) {
		t.Errorf("items are %v, want %v", got, want)
	}
	revision, err := to.Meta().Put(t.Context(), "key/7", nil, 0)
	if err != nil || revision <= from.Revision() {
		t.Errorf("a new revision is %d: %v; the source had %d", revision, err, from.Revision())
	}
}

// forgetful is a target that loses an item.
type forgetful struct{ *filestore.Store }

func (f forgetful) Restore(ctx context.Context, items []topic.Item, revision uint64) error {
	return f.Store.Restore(ctx, items[1:], revision)
}

// deceitful is a target whose logs change the data of an entry.
type deceitful struct{ *filestore.Store }

type deceitfulLog struct{ topic.Log }

func (d deceitful) MakeLog(ctx context.Context, name string, nodes []int32, first uint64) (topic.Log, error) {
	l, err := d.Store.MakeLog(ctx, name, nodes, first)
	return deceitfulLog{l}, err
}

func (l deceitfulLog) Append(entry topic.Entry, done func(error)) {
	if entry.Sequence == 20 {
		entry.Data = bytes.Repeat([]byte{1}, len(entry.Data))
	}
	l.Log.Append(entry, done)
}

// A copy that is not the same is an error, and so is a target that is not empty.
func TestWrongCopies(t *testing.T) {
	from := source(t)
	for name, wrap := range map[string]func(*filestore.Store) convert.Target{
		"item":  func(s *filestore.Store) convert.Target { return forgetful{s} },
		"entry": func(s *filestore.Store) convert.Target { return deceitful{s} },
		"not empty": func(s *filestore.Store) convert.Target {
			_, err := s.MakeLog(t.Context(), "full", []int32{1}, 7)
			must(t, err)
			return s
		},
	} {
		t.Run(name, func(t *testing.T) {
			to, err := filestore.Open(t.TempDir(), filestore.Options{Logger: quiet})
			must(t, err)
			defer func() { must(t, to.Close()) }()
			if _, err := convert.Run(t.Context(), from, wrap(to), &convert.Progress{}); err == nil {
				t.Error("a wrong copy is accepted")
			}
		})
	}
}
