package compact_test

import (
	"context"
	"errors"
	"testing"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/compact"
	"github.com/sluice-project/sluice/topic/storetest"
)

// A generation whose leader was replaced before the end of its pass does not count, and is removed by the
// next leader, also if the first one goes on.
func TestAPassOfAReplacedLeader(t *testing.T) {
	store, ctx := storetest.NewMemory(), t.Context()
	if _, err := store.OpenLog(ctx, names.Records, []int32{1}); err != nil {
		t.Fatal(err)
	}
	open := func() *compact.Log {
		t.Helper()
		log, err := compact.Open(ctx, store, names)
		if err != nil {
			t.Fatal(err)
		}
		return log
	}
	guard := func(context.Context) (topic.Guard, error) { return topic.Guard{Key: "leader"}, nil }
	first := open()
	made, err := first.Begin(ctx, guard, []int32{1}, 1)
	if err != nil {
		t.Fatal(err)
	}
	appended(t, made, topic.Entry{Sequence: 1})
	if _, err := store.Meta().Put(ctx, "leader", []byte("another"), 0); err != nil {
		t.Fatal(err)
	}
	if err := first.Commit(ctx, guard, made, 1, topic.Mark{}, 0, 1); !errors.Is(err, topic.ErrConflict) {
		t.Fatalf("the pass counts: %v, want an ErrConflict", err)
	}
	next := open()
	if record := next.Record(); record.Log != "" || next.Compacted() {
		t.Fatalf("record %+v", record)
	}
	if err := next.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	if _, _, err := made.Ends(ctx); !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("what the first one has written: %v, want an ErrNoLog", err)
	}
}

// A generation that is not there as a whole is not read: the entries after it would be taken for its own.
func TestAGenerationWithoutItsEndIsNotRead(t *testing.T) {
	store, ctx := storetest.NewMemory(), t.Context()
	if _, err := store.OpenLog(ctx, names.Records, []int32{1}); err != nil {
		t.Fatal(err)
	}
	if _, err := store.MakeLog(ctx, names.Clean+"1", []int32{1}, 5); err != nil {
		t.Fatal(err)
	}
	record := []byte(`{"format":1,"log":"` + names.Clean + `1","last":5,"mark":{},"number":1}`)
	if _, err := store.Meta().Put(ctx, names.Compaction, record, 0); err != nil {
		t.Fatal(err)
	}
	if _, err := compact.Open(ctx, store, names); err == nil {
		t.Error("a generation that ends at 4 is read, want one that ends at 5")
	}
}
