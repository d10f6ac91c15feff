package natsstore

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/compact"
)

// A generation that one node has made is read by all as a whole; what another has begun is removed by the next
// one, and does not count; and generations are placed, and deleted, as logs are.
func TestGenerationsOnNodes(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, func(o *Options) { o.SyncInterval = 0 })
	ctx, names := t.Context(), catalog.NamesOf(topic.ID{1}, 0, 0)
	open := func(node int32) (l *compact.Log) {
		t.Helper()
		until.Succeeds(t, "open the log", func() (err error) {
			l, err = compact.Open(ctx, ns.node(node), names)
			return err
		})
		return l
	}
	add := func(to topic.Log, text string, sequences ...uint64) {
		t.Helper()
		for _, sequence := range sequences {
			done := make(chan error, 1)
			data := fmt.Appendf(nil, "%s%d", text, sequence)
			to.Append(topic.Entry{Sequence: sequence, Mark: topic.Mark{Base: int64(sequence) - 1, Next: int64(sequence)}, Data: data}, func(err error) { done <- err })
			if err := <-done; err != nil {
				t.Fatal(err)
			}
		}
	}
	read := func(from topic.Log) (all string) {
		t.Helper()
		first, last, err := from.Ends(ctx)
		if err != nil {
			t.Fatal(err)
		}
		for at := first; at <= last; {
			entries, err := from.Read(ctx, at, 1)
			if err != nil || len(entries) == 0 || entries[0].Sequence != at {
				t.Fatalf("%d entries at %d: %v", len(entries), at, err)
			}
			for _, entry := range entries {
				all += string(entry.Data) + " "
			}
			at = entries[len(entries)-1].Sequence + 1
		}
		return strings.TrimSpace(all)
	}
	free := func(context.Context) (topic.Guard, error) { return topic.Guard{Key: "free"}, nil }
	on := []int32{1, 2, 3}

	add(ns.log(1, names.Records, on...), "r", 1, 2, 3, 4, 5)
	one := open(1)
	made, err := one.Begin(ctx, free, on, 3)
	if err != nil {
		t.Fatal(err)
	}
	add(made, "c", 3, 4)
	if err := one.Commit(ctx, free, made, 4, topic.Mark{Base: 3, Next: 4}, 0, 4); err != nil {
		t.Fatal(err)
	}
	one.Use(made)
	if err := one.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	for node := int32(1); node <= 3; node++ {
		if err := ns.node(node).Meta().Sync(ctx); err != nil {
			t.Fatal(err)
		}
		if got := read(open(node)); got != "c3 c4 r5" {
			t.Errorf("node %d reads %s", node, got)
		}
	}

	two := open(2)
	begun, err := two.Begin(ctx, free, on, 4)
	if err != nil {
		t.Fatal(err)
	}
	add(begun, "d", 4)
	if err := ns.node(3).Meta().Sync(ctx); err != nil {
		t.Fatal(err)
	}
	three := open(3)
	if err := three.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	next, err := three.Begin(ctx, free, on, 5)
	if err != nil {
		t.Fatal(err)
	}
	add(next, "e", 5)
	if err := two.Commit(ctx, free, begun, 4, topic.Mark{Base: 3, Next: 4}, 0, 4); err == nil {
		t.Fatal("a pass counts that another node has removed")
	}
	if err := three.Commit(ctx, free, next, 5, topic.Mark{Base: 4, Next: 5}, 0, 5); err != nil {
		t.Fatal(err)
	}
	three.Use(next)
	if err := three.Settle(ctx); err != nil {
		t.Fatal(err)
	}
	// Node 1 has led before, and leads again.
	if err := ns.node(1).Meta().Sync(ctx); err != nil {
		t.Fatal(err)
	}
	again, err := one.Refresh(ctx)
	if err != nil || again == nil {
		t.Fatalf("generation %v, %v: want the one of node 3", again, err)
	}
	one.Use(again)
	if got := read(one); got != "e5" {
		t.Errorf("node 1 reads %s", got)
	}

	clean := names.Clean + "3"
	ns.place(2, clean, 1)
	if got := read(open(2)); got != "e5" {
		t.Errorf("from one replica: %s", got)
	}
	if err := compact.Delete(ctx, ns.node(1), names); err != nil {
		t.Fatal(err)
	}
	until.True(t, "no generation is left", func() bool {
		logs, err := ns.node(2).Logs(ctx)
		return err == nil && !slices.ContainsFunc(logs, func(log string) bool { return strings.HasPrefix(log, catalog.CleanPrefix) })
	})
}
