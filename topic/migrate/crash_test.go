package migrate_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/migrate"
	"github.com/sluice-project/sluice/topic/storetest"
)

var errKilled = errors.New("killed")

// killer kills a migrator at one of its calls: before the call's effect, or after it. All
// later calls fail, as those of a dead process.
type killer struct {
	left  atomic.Int64 // calls until then; negative: never
	after bool
}

func (k *killer) call(do func() error) error {
	left := k.left.Add(-1)
	switch {
	case left > 0:
		return do()
	case left == 0 && k.after:
		_ = do() // no caller learns of it
	}
	return errKilled
}

// killedSource and killedTarget are those of a migrator that is killed.
type killedSource struct {
	*migrate.Export
	k *killer
}

func (s killedSource) Inventory(ctx context.Context) (i migrate.Inventory, err error) {
	err = s.k.call(func() error { i, err = s.Export.Inventory(ctx); return err })
	return i, err
}

func (s killedSource) Fence(ctx context.Context, cluster string, run int64) error {
	return s.k.call(func() error { return s.Export.Fence(ctx, cluster, run) })
}

func (s killedSource) Unfence(ctx context.Context, cluster string, run int64) error {
	return s.k.call(func() error { return s.Export.Unfence(ctx, cluster, run) })
}

func (s killedSource) Moved(ctx context.Context, cluster string, run int64, nodes []catalog.Address) error {
	return s.k.call(func() error { return s.Export.Moved(ctx, cluster, run, nodes) })
}

type killedTarget struct {
	*migrate.Import
	k *killer
}

func (t killedTarget) Begin(ctx context.Context, request migrate.ImportRequest) (status migrate.ImportStatus, err error) {
	err = t.k.call(func() error { status, err = t.Import.Begin(ctx, request); return err })
	return status, err
}

func (t killedTarget) Append(ctx context.Context, source string, run int64, log string, entries []topic.Entry) (last uint64, err error) {
	err = t.k.call(func() error { last, err = t.Import.Append(ctx, source, run, log, entries); return err })
	return last, err
}

func (t killedTarget) Put(ctx context.Context, source string, run int64, items []topic.Item) error {
	return t.k.call(func() error { return t.Import.Put(ctx, source, run, items) })
}

func (t killedTarget) Commit(ctx context.Context, run int64, inventory migrate.Inventory) error {
	return t.k.call(func() error { return t.Import.Commit(ctx, run, inventory) })
}

func (t killedTarget) Open(ctx context.Context, source string, run int64, topics []topic.Item) (nodes []catalog.Address, err error) {
	err = t.k.call(func() error { nodes, err = t.Import.Open(ctx, source, run, topics); return err })
	return nodes, err
}

func (t killedTarget) Abort(ctx context.Context, source string) (status migrate.ImportStatus, err error) {
	err = t.k.call(func() error { status, err = t.Import.Abort(ctx, source); return err })
	return status, err
}

func (t killedTarget) Clean(ctx context.Context, source string, run int64) error {
	return t.k.call(func() error { return t.Import.Clean(ctx, source, run) })
}

// moveMachine is a server that is migrated by migrators that are killed, one after
// another, while it works, crashes, and changes.
type moveMachine struct {
	source *server
	target *storetest.Memory
	// acknowledged holds the values of each topic, of which the first ones may have
	// been deleted; committed the offset of group g in each.
	acknowledged map[string][]string
	committed    map[string]int64
	deleted      map[string]int
	sequence     map[string]int32
	last         map[string]topic.Batch
	topics       int
	gone         bool // the source was migrated, and is down
}

func newMoveMachine(t *rapid.T) *moveMachine {
	m := &moveMachine{
		source: startServer(t, storetest.NewMemory()), target: storetest.NewMemory(),
		acknowledged: map[string][]string{}, committed: map[string]int64{}, deleted: map[string]int{},
		sequence: map[string]int32{}, last: map[string]topic.Batch{},
	}
	t.Cleanup(func() {
		if !m.gone {
			m.source.stop()
		}
	})
	m.create(t)
	return m
}

func (m *moveMachine) serves() bool { return m.source.inventory().Move.State == catalog.Serving }

func (m *moveMachine) create(t *rapid.T) {
	if m.gone || !m.serves() || m.topics == 4 {
		return
	}
	m.topics++
	name := fmt.Sprint("t", m.topics)
	m.source.create(name, 1, map[string]string{"retention.ms": "-1"})
	m.acknowledged[name] = []string{}
}

func (m *moveMachine) some(t *rapid.T) string {
	names := []string{}
	for name := range m.acknowledged {
		names = append(names, name)
	}
	slices.Sort(names)
	if len(names) == 0 {
		return ""
	}
	return rapid.SampledFrom(names).Draw(t, "topic")
}

// produce sends a batch of an idempotent producer. It is refused exactly if the source
// does not serve.
func (m *moveMachine) produce(t *rapid.T) {
	name := m.some(t)
	if m.gone || name == "" {
		return
	}
	for range rapid.IntRange(1, 20).Draw(t, "batches") {
		value := fmt.Sprint(name, "-", m.sequence[name])
		b := batch(t, &topic.BatchProducer{ID: 7, Sequence: m.sequence[name]}, nil, value)
		_, err := m.source.send(name, 0, b)
		if serves := m.serves(); serves != (err == nil) {
			t.Fatalf("the source serves: %v; a batch: %v", serves, err)
		}
		if err != nil {
			return
		}
		m.sequence[name]++
		m.last[name] = b
		m.acknowledged[name] = append(m.acknowledged[name], value)
	}
}

func (m *moveMachine) commit(t *rapid.T) {
	name := m.some(t)
	if m.gone || name == "" {
		return
	}
	offset := int64(len(m.acknowledged[name]))
	err := m.source.commit(group.MemberIdentity{Group: "g", Generation: -1}, name, offset)
	if serves := m.serves(); serves != (err == nil) {
		t.Fatalf("the source serves: %v; a commit: %v", serves, err)
	}
	if err == nil {
		m.committed[name] = offset
	}
}

// trim deletes the first records of a topic.
func (m *moveMachine) trim(t *rapid.T) {
	name := m.some(t)
	if m.gone || name == "" || !m.serves() {
		return
	}
	before := rapid.IntRange(m.deleted[name], len(m.acknowledged[name])).Draw(t, "before")
	p := m.partition(t)(name)
	_, err := p.DeleteRecords(context.Background(), int64(before))
	must(t, err)
	m.deleted[name] = before
}

func (m *moveMachine) partition(t *rapid.T) func(string) *broker.Partition {
	return func(name string) *broker.Partition {
		of, err := m.source.broker.Topic(name)
		must(t, err)
		p, err := of.Partition(0)
		must(t, err)
		return p
	}
}

// remove deletes a topic.
func (m *moveMachine) remove(t *rapid.T) {
	name := m.some(t)
	if m.gone || name == "" || !m.serves() {
		return
	}
	must(t, m.source.broker.Delete(context.Background(), name))
	delete(m.acknowledged, name)
	delete(m.committed, name)
}

// restart crashes the source. A migrated one does not come back.
func (m *moveMachine) restart(t *rapid.T) {
	if m.gone {
		return
	}
	err := m.source.crash()
	var moved *catalog.MigratedError
	switch {
	case errors.As(err, &moved):
		m.gone = true
		m.source.export, err = migrate.NewExport(m.source.store, nil)
	case err != nil:
		t.Fatal(err)
	}
	must(t, err)
}

// crashTarget crashes the target's node; its durable data stays.
func (m *moveMachine) crashTarget(*rapid.T) { m.target = m.target.Reopen() }

// move runs a migrator that is killed at some call.
func (m *moveMachine) move(t *rapid.T) {
	k := &killer{after: rapid.Bool().Draw(t, "after")}
	k.left.Store(rapid.Int64Range(1, 40).Draw(t, "calls"))
	mover := migrate.New(killedSource{m.source.export, k}, killedTarget{migrate.NewImport(m.target), k}, migrate.Options{}).Rescue(time.Millisecond)
	var err error
	if rapid.IntRange(0, 4).Draw(t, "abort") == 0 {
		_, err = mover.Abort(context.Background())
	} else {
		_, err = mover.Run(context.Background())
	}
	if err != nil && !errors.Is(err, errKilled) && !errors.Is(err, migrate.ErrImported) {
		t.Fatal(err)
	}
}

// check is called after each step: the two never both serve, and the topics of the target
// are complete.
func (m *moveMachine) check(t *rapid.T) {
	opened := items(t, m.target, "topics/")
	if len(opened) == 0 {
		return
	}
	if m.serves() {
		t.Fatalf("both serve: the target has %d topics", len(opened))
	}
	if items(t, m.target, "imports/")[`imports/`+m.source.inventory().Cluster] == "" {
		t.Fatal("there are topics and no import")
	}
}

// end runs a migrator to its end, and checks the contents of the target.
func (m *moveMachine) end(t *rapid.T) {
	_, err := migrate.New(m.source.export, migrate.NewImport(m.target), migrate.Options{}).Run(context.Background())
	must(t, err)
	for _, in := range m.source.inventory().Topics {
		// A source that starts again after the decision fences its logs once more.
		want, got := entries(t, m.source.store, in.Logs[0].Name), entries(t, m.target, in.Logs[0].Name)
		for len(want) > len(got) && len(want[len(want)-1].Data) == 0 {
			want = want[:len(want)-1]
		}
		if fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("the log of %s has %v, want %v", in.Name, got, want)
		}
	}
	target := startServer(t, m.target)
	defer target.stop()
	if got := len(target.broker.Topics()); got != len(m.acknowledged) {
		t.Fatalf("the target has %d topics, want %d", got, len(m.acknowledged))
	}
	for name, want := range m.acknowledged {
		if got := target.values(name, 0); !slices.Equal(got, want[m.deleted[name]:]) {
			t.Fatalf("%s has %q, want %q", name, got, want[m.deleted[name]:])
		}
		if last := m.last[name]; last != nil {
			if base, err := target.send(name, 0, last); err != nil || base != int64(len(want)-1) {
				t.Fatalf("the last batch of %s again: %d, %v, want %d", name, base, err, len(want)-1)
			}
		}
		if want, ok := m.committed[name]; ok {
			offsets, err := target.broker.Groups().Offsets("g")
			must(t, err)
			if got := offsets[name][0].Offset; got != want {
				t.Fatalf("group g has offset %d in %s, want %d", got, name, want)
			}
		}
	}
}

// Migrators may be killed at any call, and so may both servers.
func TestMoversMayBeKilled(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := newMoveMachine(t)
		t.Repeat(map[string]func(*rapid.T){
			"create": m.create, "produce": m.produce, "commit": m.commit, "trim": m.trim, "remove": m.remove,
			"restart": m.restart, "crash of the target": m.crashTarget, "move": m.move, "move again": m.move, "": m.check,
		})
		m.end(t)
	})
}
