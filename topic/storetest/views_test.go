package storetest

import (
	"context"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// lateView is a node's view of metadata that others write too: the state when the node
// last wrote, synced or was notified of a change. The contract requires no more.
type lateView struct {
	*memoryMeta
	fault string

	mu      sync.Mutex
	seen    map[string]topic.Item
	signals []func() // of the fault that needs them
}

func newLateViews(fault string) []topic.Meta {
	shared := &NewMemory().meta
	var views []topic.Meta
	for range 3 {
		v := &lateView{memoryMeta: shared, fault: fault, seen: map[string]topic.Item{}}
		if !v.is("sync does not wait", "no news from others", "writes are not read", "conflicts are not read", "signals come before the change", "conditions are looked at in the view") {
			shared.Watch("", func() { go v.look() })
		}
		views = append(views, v)
	}
	return views
}

func (v *lateView) is(faults ...string) bool { return slices.Contains(faults, v.fault) }

// look updates the view.
func (v *lateView) look() {
	v.mu.Lock()
	defer v.mu.Unlock()
	items, _ := v.memoryMeta.List(context.Background(), "")
	v.seen = map[string]topic.Item{}
	for _, item := range items {
		v.seen[item.Key] = item
	}
}

// Get implements [topic.Meta].
func (v *lateView) Get(_ context.Context, key string) (topic.Item, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if item, exists := v.seen[key]; exists {
		return item, nil
	}
	return topic.Item{}, topic.ErrNotFound
}

// List implements [topic.Meta].
func (v *lateView) List(ctx context.Context, prefix string) ([]topic.Item, error) {
	if v.is("lists of two moments") {
		return torn(ctx, v.memoryMeta, prefix)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	items := []topic.Item{}
	for key, item := range v.seen {
		if strings.HasPrefix(key, prefix) {
			items = append(items, item)
		}
	}
	slices.SortFunc(items, func(a, b topic.Item) int { return strings.Compare(a.Key, b.Key) })
	return items, nil
}

// believed replaces conditions by those that a late view takes to be right.
func (v *lateView) believed(ctx context.Context, key string, revision uint64, guards []topic.Guard) (uint64, []topic.Guard) {
	if v.is("guards are not looked at") {
		guards = nil
	}
	if item, _ := v.Get(ctx, key); v.is("conditions are looked at in the view") && item.Revision == revision {
		<-time.After(time.Millisecond) // so that others come between
		item, _ = v.memoryMeta.Get(ctx, key)
		revision = item.Revision
	}
	return revision, guards
}

// wrote updates the view after a write.
func (v *lateView) wrote(err error) {
	if v.is("writes are not read") || err != nil && v.is("conflicts are not read") {
		return
	}
	v.look()
	for _, signal := range v.signals {
		signal()
	}
}

// Put implements [topic.Meta].
func (v *lateView) Put(ctx context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (uint64, error) {
	revision, guards = v.believed(ctx, key, revision, guards)
	revision, err := v.memoryMeta.Put(ctx, key, value, revision, guards...)
	v.wrote(err)
	return revision, err
}

// Delete implements [topic.Meta].
func (v *lateView) Delete(ctx context.Context, key string, revision uint64, guards ...topic.Guard) error {
	revision, guards = v.believed(ctx, key, revision, guards)
	err := v.memoryMeta.Delete(ctx, key, revision, guards...)
	v.wrote(err)
	return err
}

// Sync implements [topic.Meta].
func (v *lateView) Sync(context.Context) error {
	if !v.is("sync does not wait") {
		v.look()
	}
	return nil
}

// Watch implements [topic.Meta].
func (v *lateView) Watch(prefix string, signal func()) (cancel func()) {
	if v.is("watches tell of own writes only") {
		v.signals = append(v.signals, signal)
		return func() {}
	}
	var mu sync.Mutex
	over := false
	end := v.memoryMeta.Watch(prefix, func() {
		go func() {
			if !v.is("signals come before the change", "conditions are looked at in the view") {
				v.look()
			}
			mu.Lock()
			defer mu.Unlock()
			if !over {
				signal()
			}
		}()
	})
	return func() {
		end()
		mu.Lock()
		defer mu.Unlock()
		over = true
	}
}

// TestViews runs the suite of several nodes against views of the metadata in
// memory: up to date, as late as the contract allows, and of a cluster.
func TestViews(t *testing.T) {
	t.Parallel()
	t.Run("late", func(t *testing.T) { RunMetaNodes(t, newLateViews("")) })
	t.Run("at once", func(t *testing.T) {
		shared := &NewMemory().meta
		RunMetaNodes(t, []topic.Meta{shared, shared})
	})
	t.Run("of a cluster", func(t *testing.T) {
		nodes := NewCluster(3)
		var views []topic.Meta
		for id := range int32(3) {
			views = append(views, nodes.Store(id+1).Meta())
		}
		const while = 200 * time.Millisecond
		RunMetaNodes(t, views)
		RunDisturbed(t, views,
			Disturbance{"while one lags", func(testing.TB) {
				nodes.Store(2).Lag(true)
				<-time.After(while)
				nodes.Store(2).Lag(false)
			}},
			Disturbance{"while one is cut off", func(testing.TB) {
				nodes.Cut(3)
				<-time.After(while)
				nodes.Heal(3)
			}},
		)
	})
}

// viewFaults are the mistakes of views, with the parts that must find them.
var viewFaults = map[string][]string{
	"sync does not wait":                   {"what one writes all see after a sync", "model of the metadata", "histories undisturbed"},
	"no news from others":                  {"what one writes all see in time"},
	"writes are not read":                  {"a node reads what it has written"},
	"conflicts are not read":               {"after a conflict a node sees with what"},
	"guards are not looked at":             {"a guard holds over nodes", "histories undisturbed"},
	"watches tell of own writes only":      {"watches of all nodes tell what any writes"},
	"signals come before the change":       {"a signal comes when the change can be read"},
	"conditions are looked at in the view": {"counts of all nodes add up", "histories undisturbed"},
	"lists of two moments":                 {"lists of other nodes are of one moment"},
}

// TestViewFaults is TestFaults for several nodes.
func TestViewFaults(t *testing.T) {
	expectFailures(t)
	for fault, parts := range viewFaults {
		for _, part := range parts {
			t.Run(fault+" by "+part, func(t *testing.T) {
				if !finds(t, func(tb testing.TB) { runViews(tb, newLateViews(fault), part) }) {
					t.Fatalf("%s passes nodes with the fault %q", part, fault)
				}
			})
		}
	}
}

// runViews runs one part of the suite of several nodes.
func runViews(t testing.TB, views []topic.Meta, name string) {
	switch name {
	case inMeta:
		checkViews(t, views)
	case "histories undisturbed":
		checkHistory(t, views, nil)
	default:
		i := slices.IndexFunc(viewCases, func(c viewCase) bool { return c.name == name })
		viewCases[i].run(newViewKits(t, views))
	}
}

// TestSteps checks the model of histories where writes are not answered.
func TestSteps(t *testing.T) {
	put := asked{kind: putKind, value: "new", expect: 1}
	remove := asked{kind: deleteKind, expect: 1}
	read := asked{kind: readKind}
	open := told{err: topic.ErrUncertain}
	old, made := [2]register{{1, "old"}}, [2]register{{unknown, "new"}}
	for name, c := range map[string]struct {
		state [2]register
		in    asked
		out   told
		want  []any
	}{
		"a put that may be made":        {old, put, open, []any{old, made}},
		"a put that cannot be made":     {[2]register{{2, "old"}}, put, open, []any{[2]register{{2, "old"}}}},
		"a put that a guard holds back": {old, asked{kind: putKind, expect: 1, guarded: true, guard: 3}, open, []any{old}},
		"a deletion that may be made":   {old, remove, open, []any{old, [2]register{}}},
		"a deletion of nothing":         {[2]register{}, remove, open, []any{[2]register{}}},
		"a read that finds it":          {made, read, told{revision: 5, value: "new"}, []any{[2]register{{5, "new"}}}},
		"a read of another":             {made, read, told{revision: 5, value: "old"}, nil},
		"a read of another revision":    {old, read, told{revision: 5, value: "old"}, nil},
		"a put over it":                 {made, put, told{revision: 9}, nil},
		"a conflict with it":            {made, put, told{err: topic.ErrConflict}, []any{made}},
		"a conflict with nothing":       {old, put, told{err: topic.ErrConflict}, nil},
		"a deletion of what is there":   {old, remove, told{err: topic.ErrNotFound}, nil},
	} {
		if got := step(c.state, c.in, c.out); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
