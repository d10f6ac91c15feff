package storetest

import (
	"context"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// lateView is what a node sees of metadata that others write too: what it was
// when the node last wrote, synced or heard of a change. It is all that the
// contract asks for.
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

// look takes what is there.
func (v *lateView) look() {
	v.mu.Lock()
	defer v.mu.Unlock()
	items, _ := v.memoryMeta.List(context.Background(), "")
	v.seen = map[string]topic.Item{}
	for _, item := range items {
		v.seen[item.Key] = item
	}
}

// Get is topic.Meta's.
func (v *lateView) Get(_ context.Context, key string) (topic.Item, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if item, exists := v.seen[key]; exists {
		return item, nil
	}
	return topic.Item{}, topic.ErrNotFound
}

// List is topic.Meta's.
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

// believed replaces conditions by those that a view that is late has for right.
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

// wrote makes the view know of a write that has ended.
func (v *lateView) wrote(err error) {
	if v.is("writes are not read") || err != nil && v.is("conflicts are not read") {
		return
	}
	v.look()
	for _, signal := range v.signals {
		signal()
	}
}

// Put is topic.Meta's.
func (v *lateView) Put(ctx context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (uint64, error) {
	revision, guards = v.believed(ctx, key, revision, guards)
	revision, err := v.memoryMeta.Put(ctx, key, value, revision, guards...)
	v.wrote(err)
	return revision, err
}

// Delete is topic.Meta's.
func (v *lateView) Delete(ctx context.Context, key string, revision uint64, guards ...topic.Guard) error {
	revision, guards = v.believed(ctx, key, revision, guards)
	err := v.memoryMeta.Delete(ctx, key, revision, guards...)
	v.wrote(err)
	return err
}

// Sync is topic.Meta's.
func (v *lateView) Sync(context.Context) error {
	if !v.is("sync does not wait") {
		v.look()
	}
	return nil
}

// Watch is topic.Meta's.
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
// memory: at once, as late as the contract allows, and of a cluster.
func TestViews(t *testing.T) {
	t.Run("late", func(t *testing.T) { RunMetaNodes(t, newLateViews(os.Getenv(faultVariable))) })
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
		RunMetaNodes(t, views,
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

// viewFaults are the mistakes of views, and the parts that must find them.
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
	for fault, parts := range viewFaults {
		for _, part := range parts {
			t.Run(fault+" by "+part, func(t *testing.T) {
				name := strings.ReplaceAll(part, " ", "_")
				command := exec.Command(os.Args[0], "-test.run=TestViews/^late$/^"+name+"$", "-test.failfast", "-rapid.nofailfile", "-rapid.shrinktime=1ms")
				command.Env = append(os.Environ(), faultVariable+"="+fault, patienceVariable+"=200ms")
				output, err := command.CombinedOutput()
				if err == nil {
					t.Fatalf("%s passes nodes with the fault %q", part, fault)
				}
				if !strings.Contains(string(output), "--- FAIL: TestViews/late/"+name) || strings.Contains(string(output), "panic:") {
					t.Fatalf("the suite broke instead of failing:\n%s", output)
				}
			})
		}
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
