package storetest

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
)

// Disturbance disturbs nodes while their metadata is in use.
type Disturbance struct {
	Name string
	// Do runs the disturbance, and returns when it is over. Nil for none.
	Do func(t testing.TB)
}

// RunMetaNodes checks the views that several nodes have of one metadata, which is
// empty at first: each view's promises, and that a history of operations is
// linearizable.
func RunMetaNodes(t *testing.T, views []topic.Meta) {
	if len(views) < 2 {
		t.Fatalf("%d views: want two or more", len(views))
	}
	for _, c := range viewCases {
		t.Run(c.name, func(t *testing.T) { c.run(newViewKits(t, views)) })
	}
	t.Run("model of the metadata", func(t *testing.T) { checkViews(t, views) })
	RunDisturbed(t, views, Disturbance{Name: "undisturbed"})
}

// RunDisturbed checks that histories of operations are linearizable, whatever disturbs
// the nodes.
func RunDisturbed(t *testing.T, views []topic.Meta, disturbances ...Disturbance) {
	for _, d := range disturbances {
		t.Run("histories "+d.Name, func(t *testing.T) { checkHistory(t, views, d.Do) })
	}
}

// viewKits are the kits of all nodes. The embedded one is the first.
type viewKits struct {
	*kit
	all []*kit
}

// view is a store with metadata only.
type view struct {
	topic.Store
	meta topic.Meta
}

func (v view) Meta() topic.Meta { return v.meta }

func newViewKits(t testing.TB, views []topic.Meta) *viewKits {
	ctx, cancel := context.WithTimeout(context.Background(), 10*patience)
	t.Cleanup(cancel)
	n := &viewKits{}
	for _, m := range views {
		n.all = append(n.all, &kit{t: t, ctx: ctx, store: view{meta: m}})
	}
	n.kit = n.all[0]
	return n
}

// sync brings a node's view up to date.
func (k *kit) sync() {
	k.t.Helper()
	k.must(k.store.Meta().Sync(k.ctx))
}

// eventually waits until something is true.
func (k *kit) eventually(what string, is func() bool) {
	k.t.Helper()
	for deadline := time.Now().Add(patience); !is(); {
		if time.Now().After(deadline) {
			k.t.Fatalf("not within %v: %s", patience, what)
		}
		select {
		case <-k.ctx.Done():
		case <-time.After(time.Millisecond):
		}
	}
}

// viewCase is a rule for the views of several nodes. Its keys begin with its name.
type viewCase struct {
	name string
	run  func(n *viewKits)
}

var viewCases = []viewCase{
	{"what one writes all see after a sync", func(n *viewKits) {
		for round := range 10 {
			for i, writer := range n.all {
				key := fmt.Sprintf("sync/%d/%d", round, i)
				revision := writer.put(key, key, 0)
				for _, reader := range n.all {
					reader.sync()
					reader.has(key, key, revision)
				}
				writer = n.all[(i+1)%len(n.all)]
				n.must(writer.store.Meta().Delete(n.ctx, key, revision))
				for _, reader := range n.all {
					reader.sync()
					reader.hasNot(key)
				}
			}
		}
	}},
	{"what one writes all see in time", func(n *viewKits) {
		for i, writer := range n.all {
			writer.put(fmt.Sprint("time/", i), "value", 0)
		}
		for _, reader := range n.all {
			n.eventually("all keys are on all nodes", func() bool {
				items, err := reader.store.Meta().List(n.ctx, "time/")
				n.must(err)
				return len(items) == len(n.all)
			})
		}
	}},
	{"a node reads what it has written", func(n *viewKits) {
		work(len(n.all), func(i int) error {
			k, key := n.all[i], fmt.Sprint("own/", i)
			for round := range 50 {
				if err := k.readsItsWrites(key, strconv.Itoa(round)); err != nil {
					return fmt.Errorf("node %d, round %d: %w", i, round, err)
				}
			}
			return nil
		}, n.kit)
	}},
	{"after a conflict a node sees with what", func(n *viewKits) {
		revision := n.put("conflict/a", "0", 0)
		for round := range 30 {
			winner, loser := n.all[round%len(n.all)], n.all[(round+1)%len(n.all)]
			next := winner.put("conflict/a", strconv.Itoa(round), revision)
			_, err := loser.store.Meta().Put(n.ctx, "conflict/a", []byte("wrong"), revision)
			n.is(err, topic.ErrConflict)
			loser.has("conflict/a", strconv.Itoa(round), next)
			n.is(loser.store.Meta().Delete(n.ctx, "conflict/a", revision), topic.ErrConflict)
			revision = next
		}
		n.must(n.store.Meta().Delete(n.ctx, "conflict/a", revision))
		last := n.all[len(n.all)-1]
		n.is(last.store.Meta().Delete(n.ctx, "conflict/a", revision), topic.ErrNotFound)
		last.hasNot("conflict/a")
	}},
	{"a guard holds over nodes", func(n *viewKits) {
		lease := n.put("guard/lease", "node", 0)
		for round := range 20 {
			owner, taker := n.all[round%len(n.all)], n.all[(round+1)%len(n.all)]
			key := fmt.Sprint("guard/", round)
			_, err := owner.store.Meta().Put(n.ctx, key, nil, 0, topic.Guard{Key: "guard/lease", Revision: lease})
			n.must(err)
			old := lease
			lease = taker.put("guard/lease", "other", lease)
			_, err = owner.store.Meta().Put(n.ctx, key+"/late", nil, 0, topic.Guard{Key: "guard/lease", Revision: old})
			n.is(err, topic.ErrConflict)
			owner.hasNot(key + "/late")
		}
	}},
	{"watches of all nodes tell what any writes", func(n *viewKits) {
		signals := make([]atomic.Int64, len(n.all))
		for i, k := range n.all {
			cancel := k.store.Meta().Watch("watch/a", func() { signals[i].Add(1) })
			defer cancel()
		}
		told := func(what string, change func()) {
			before := make([]int64, len(n.all))
			for i := range signals {
				before[i] = signals[i].Load()
			}
			change()
			for i := range signals {
				n.eventually(fmt.Sprintf("the watch of node %d tells of %s", i, what), func() bool { return signals[i].Load() > before[i] })
			}
		}
		for i, writer := range n.all {
			key, revision := fmt.Sprint("watch/a/", i), uint64(0)
			told("a put", func() { revision = writer.put(key, "", 0) })
			told("a deletion", func() { n.must(writer.store.Meta().Delete(n.ctx, key, revision)) })
		}
	}},
	{"a signal comes when the change can be read", func(n *viewKits) {
		for i, reader := range n.all {
			key := fmt.Sprint("seen/", i)
			seen := make(chan bool, 100)
			cancel := reader.store.Meta().Watch(key, func() { seen <- true })
			writer := n.all[(i+1)%len(n.all)]
			revision := writer.put(key, "value", 0)
			for found := false; !found; {
				select {
				case <-seen:
				case <-time.After(patience):
					n.t.Fatalf("node %d was told, and never of what it can read", i)
				}
				_, err := reader.store.Meta().Get(n.ctx, key)
				found = err == nil
			}
			reader.has(key, "value", revision)
			cancel()
		}
	}},
	{"counts of all nodes add up", func(n *viewKits) {
		const rounds = 25
		n.put("counter", "0", 0)
		work(2*len(n.all), func(worker int) error {
			k := n.all[worker%len(n.all)]
			if err := k.store.Meta().Sync(n.ctx); err != nil {
				return err
			}
			for range rounds {
				if err := increment(k, "counter"); err != nil {
					return err
				}
			}
			return nil
		}, n.kit)
		for _, k := range n.all {
			k.sync()
			item, err := k.store.Meta().Get(n.ctx, "counter")
			n.must(err)
			if string(item.Value) != strconv.Itoa(2*len(n.all)*rounds) {
				n.t.Fatalf("counter is %s, want %d", item.Value, 2*len(n.all)*rounds)
			}
		}
	}},
	{"lists of other nodes are of one moment", func(n *viewKits) {
		for i := range 300 {
			n.put(fmt.Sprintf("list/filler/%d", i), "x", 0)
		}
		one, two := n.put("list/one/0", "", 0), n.put("list/two/0", "", 0)
		stop := make(chan struct{})
		var moving sync.WaitGroup
		var moveErr, listErr error
		moving.Go(func() {
			for i := 1; moveErr == nil; i++ {
				select {
				case <-stop:
					return
				default:
				}
				k := n.all[i%len(n.all)]
				if one, moveErr = move(k, "list/one/", i, one, true); moveErr == nil {
					two, moveErr = move(k, "list/two/", i, two, false)
				}
			}
		})
		for i := range 60 * len(n.all) {
			k := n.all[i%len(n.all)]
			if i < len(n.all) {
				k.sync()
			}
			items, err := k.store.Meta().List(n.ctx, "list/")
			if listErr = errors.Join(err, oneMoment(items)); listErr != nil {
				break
			}
		}
		close(stop)
		moving.Wait()
		n.must(errors.Join(moveErr, listErr))
	}},
}

// readsItsWrites sets, changes and deletes a key, and reads it after each step.
func (k *kit) readsItsWrites(key, value string) error {
	m := k.store.Meta()
	for _, step := range []string{value, value + "'"} {
		item, err := m.Get(k.ctx, key)
		if err != nil && !errors.Is(err, topic.ErrNotFound) {
			return err
		}
		revision, err := m.Put(k.ctx, key, []byte(step), item.Revision)
		if err != nil {
			return err
		}
		if item, err = m.Get(k.ctx, key); err != nil || string(item.Value) != step || item.Revision != revision {
			return fmt.Errorf("%q at %d, want %q at %d: %w", item.Value, item.Revision, step, revision, err)
		}
		items, err := m.List(k.ctx, key)
		if err != nil || len(items) != 1 || items[0].Revision != revision {
			return fmt.Errorf("a list has %d items: %w", len(items), err)
		}
		if step == value {
			continue
		}
		if err := m.Delete(k.ctx, key, revision); err != nil {
			return err
		}
		if _, err := m.Get(k.ctx, key); !errors.Is(err, topic.ErrNotFound) {
			return fmt.Errorf("a deleted key: %w", err)
		}
	}
	return nil
}

// hopping is the metadata of a client that asks another node each time.
type hopping struct {
	topic.Meta
	views []topic.Meta
	turn  atomic.Uint64
}

func (h *hopping) next() topic.Meta { return h.views[h.turn.Add(1)%uint64(len(h.views))] }

// Get syncs first, as a client must that wrote to another node.
func (h *hopping) Get(ctx context.Context, key string) (topic.Item, error) {
	m := h.next()
	if err := m.Sync(ctx); err != nil {
		return topic.Item{}, err
	}
	return m.Get(ctx, key)
}

// List syncs first.
func (h *hopping) List(ctx context.Context, prefix string) ([]topic.Item, error) {
	m := h.next()
	if err := m.Sync(ctx); err != nil {
		return nil, err
	}
	return m.List(ctx, prefix)
}

// Put is the next node's.
func (h *hopping) Put(ctx context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (uint64, error) {
	return h.next().Put(ctx, key, value, revision, guards...)
}

// Delete is the next node's.
func (h *hopping) Delete(ctx context.Context, key string, revision uint64, guards ...topic.Guard) error {
	return h.next().Delete(ctx, key, revision, guards...)
}

// checkViews runs the model of the metadata over all nodes in turn.
func checkViews(t testing.TB, views []topic.Meta) {
	n := newViewKits(t, []topic.Meta{&hopping{views: views}})
	runs := 0
	rapid.Check(t, func(rt *rapid.T) {
		runs++
		m := &metaModel{
			kit: n.within(rt), outer: n.kit, prefix: fmt.Sprint("nodes", runs, "/"),
			items: map[string]topic.Item{}, given: map[string]map[uint64]bool{},
		}
		for range rounds() {
			rt.Repeat(map[string]func(*rapid.T){
				"put": m.put, "put wrongly": m.putWrongly, "delete": m.delete, "delete wrongly": m.deleteWrongly,
				"get": m.get, "list": m.list,
			})
		}
		m.listOf(m.prefix)
	})
}
