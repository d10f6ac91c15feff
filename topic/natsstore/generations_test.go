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

// compacting is a compacted log on three nodes.
type compacting struct {
	*nodes
	names catalog.Names
}

func onFree(context.Context) (topic.Guard, error) { return topic.Guard{Key: "free"}, nil }

// open opens the log through a node, which has the newest metadata.
func (c *compacting) open(node int32) (l *compact.Log) {
	c.t.Helper()
	until.Succeeds(c.t, "open the log", func() (err error) {
		if err := c.node(node).Meta().Sync(c.t.Context()); err != nil {
			return err
		}
		l, err = compact.Open(c.t.Context(), c.node(node), c.names)
		return err
	})
	return l
}

// add appends entries of a text and their sequence.
func (c *compacting) add(to topic.Log, text string, sequences ...uint64) {
	c.t.Helper()
	for _, sequence := range sequences {
		done := make(chan error, 1)
		mark := topic.Mark{Base: int64(sequence) - 1, Next: int64(sequence)}
		to.Append(topic.Entry{Sequence: sequence, Mark: mark, Data: fmt.Appendf(nil, "%s%d", text, sequence)}, func(err error) { done <- err })
		if err := <-done; err != nil {
			c.t.Fatal(err)
		}
	}
}

// begin makes the next generation with a text in its entries.
func (c *compacting) begin(by *compact.Log, text string, sequences ...uint64) topic.Log {
	c.t.Helper()
	made, err := by.Begin(c.t.Context(), onFree, []int32{1, 2, 3}, sequences[0])
	if err != nil {
		c.t.Fatal(err)
	}
	c.add(made, text, sequences...)
	return made
}

// commit makes a generation count that has the entries up to a sequence.
func (c *compacting) commit(by *compact.Log, made topic.Log, last uint64) error {
	mark := topic.Mark{Base: int64(last) - 1, Next: int64(last)}
	if err := by.Commit(c.t.Context(), onFree, made, last, mark, 0, mark.Next); err != nil {
		return err
	}
	by.Use(made)
	return by.Settle(c.t.Context())
}

// wants checks what a log has.
func (c *compacting) wants(of *compact.Log, want string) {
	c.t.Helper()
	first, last, err := of.Ends(c.t.Context())
	if err != nil {
		c.t.Fatal(err)
	}
	all := ""
	for at := first; at <= last; at++ {
		entry, err := topic.ReadEntry(c.t.Context(), of, at)
		if err != nil || entry.Sequence != at {
			c.t.Fatalf("entry %d at %d: %v", entry.Sequence, at, err)
		}
		all += " " + string(entry.Data)
	}
	if all != " "+want {
		c.t.Errorf("the log has %s, want %s", all, want)
	}
}

// A generation that one node has made is read by all as a whole; what another has begun is removed by the next
// one, and does not count; and generations are placed, and deleted, as logs are.
func TestGenerationsOnNodes(t *testing.T) {
	t.Parallel()
	c := &compacting{startNodes(t, 3, func(o *Options) { o.SyncInterval = 0 }), catalog.NamesOf(topic.ID{1}, 0, 0)}
	c.add(c.log(1, c.names.Records, 1, 2, 3), "r", 1, 2, 3, 4, 5)
	one := c.open(1)
	if err := c.commit(one, c.begin(one, "c", 3, 4), 4); err != nil {
		t.Fatal(err)
	}
	for node := int32(1); node <= 3; node++ {
		c.wants(c.open(node), "c3 c4 r5")
	}

	two := c.open(2)
	begun := c.begin(two, "d", 4)
	three := c.open(3)
	made := c.begin(three, "e", 5)
	if err := c.commit(two, begun, 4); err == nil {
		t.Fatal("a pass counts that another node has removed")
	}
	if err := c.commit(three, made, 5); err != nil {
		t.Fatal(err)
	}
	// Node 1 has led before, and leads again.
	if err := c.node(1).Meta().Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	again, err := one.Refresh(t.Context())
	if err != nil || again == nil {
		t.Fatalf("generation %v, %v: want the one of node 3", again, err)
	}
	one.Use(again)
	c.wants(one, "e5")

	c.place(2, c.names.Clean+"3", 1)
	c.wants(c.open(2), "e5")
	if err := compact.Delete(t.Context(), c.node(1), c.names); err != nil {
		t.Fatal(err)
	}
	until.True(t, "no generation is left", func() bool {
		logs, err := c.node(2).Logs(t.Context())
		return err == nil && !slices.ContainsFunc(logs, func(log string) bool { return strings.HasPrefix(log, catalog.CleanPrefix) })
	})
}
