package migrate_test

import (
	"errors"
	"testing"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/migrate"
	"github.com/sluice-project/sluice/topic/storetest"
)

// An attempt that was overtaken can do nothing more, neither in the source nor in the
// target, however late its requests arrive.
func TestOvertakenAttempts(t *testing.T) {
	ctx := t.Context()
	source := startServer(t, storetest.NewMemory())
	defer source.stop()
	source.create("orders", 1, nil)
	_, err := source.send("orders", 0, batch(t, nil, nil, "a"))
	must(t, err)
	inventory := source.inventory()
	log := inventory.Topics[0].Logs[0]
	imports := migrate.NewImport(storetest.NewMemory())
	begin := func() migrate.ImportStatus {
		status, err := imports.Begin(ctx, migrate.ImportRequest{Inventory: inventory})
		must(t, err)
		return status
	}
	old := begin()
	must(t, source.export.Fence(ctx, old.Cluster, old.Run))
	now := begin()
	must(t, source.export.Fence(ctx, now.Cluster, now.Run))
	_, logErr := imports.Log(ctx, inventory.Cluster, old.Run, log.Name, log.First, false)
	_, appendErr := imports.Append(ctx, inventory.Cluster, old.Run, log.Name, nil)
	_, beginErr := imports.Begin(ctx, migrate.ImportRequest{Inventory: inventory, Run: old.Run})
	_, openErr := imports.Open(ctx, inventory.Cluster, old.Run, nil)
	for what, err := range map[string]error{
		"fence": source.export.Fence(ctx, old.Cluster, old.Run), "unfence": source.export.Unfence(ctx, old.Cluster, old.Run),
		"log": logErr, "append": appendErr, "begin": beginErr, "open": openErr,
		"put":    imports.Put(ctx, inventory.Cluster, old.Run, nil),
		"commit": imports.Commit(ctx, old.Run, inventory), "clean": imports.Clean(ctx, inventory.Cluster, old.Run),
	} {
		if !errors.Is(err, topic.ErrConflict) {
			t.Errorf("%s of an attempt that is over: %v", what, err)
		}
	}
	if err := imports.Commit(ctx, now.Run, inventory); !errors.Is(err, topic.ErrConflict) {
		t.Errorf("a decision before all is there: %v", err)
	}
	if err := source.export.Fence(ctx, "another", 1); !errors.As(err, new(*catalog.MigratedError)) {
		t.Errorf("a fence for another cluster: %v", err)
	}
	must(t, source.export.Unfence(ctx, now.Cluster, now.Run))
	if err := source.export.Fence(ctx, old.Cluster, old.Run); !errors.Is(err, topic.ErrConflict) {
		t.Errorf("a fence that arrives after it was taken back: %v", err)
	}
	if base, err := source.send("orders", 0, batch(t, nil, nil, "b")); err != nil || base != 1 {
		t.Errorf("the source does not serve: %d, %v", base, err)
	}
}

// A damaged entry is not copied.
func TestDamagedEntriesAreRefused(t *testing.T) {
	ctx := t.Context()
	source := startServer(t, storetest.NewMemory())
	defer source.stop()
	source.create("orders", 1, nil)
	_, err := source.send("orders", 0, batch(t, nil, nil, "a"))
	must(t, err)
	inventory := source.inventory()
	log := inventory.Topics[0].Logs[0]
	good := entries(t, source.store, log.Name)[0]
	for what, damage := range map[string]func(*topic.Entry){
		"a bit":             func(e *topic.Entry) { e.Data[30] ^= 1 },
		"its end":           func(e *topic.Entry) { e.Data = e.Data[:len(e.Data)-1] },
		"a mark that falls": func(e *topic.Entry) { e.Sequence, e.Mark.Next = 2, -5 },
	} {
		imports := migrate.NewImport(storetest.NewMemory())
		status, err := imports.Begin(ctx, migrate.ImportRequest{Inventory: inventory})
		must(t, err)
		_, err = imports.Log(ctx, inventory.Cluster, status.Run, log.Name, 1, false)
		must(t, err)
		bad := good
		bad.Data = append([]byte{}, good.Data...)
		damage(&bad)
		all := []topic.Entry{bad}
		if bad.Sequence == 2 {
			all = []topic.Entry{good, bad}
		}
		if _, err := imports.Append(ctx, inventory.Cluster, status.Run, log.Name, all); !errors.Is(err, topic.ErrCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}
