package storetest

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
	"github.com/sluice-project/sluice/topic"
)

func TestMain(m *testing.M) {
	rapidtest.Checks(25, 100)
	os.Exit(m.Run())
}

func memoryFactory(fault string) Factory {
	open := func(m *Memory) topic.Store { return m }
	if make := faults[fault].make; make != nil {
		open = func(m *Memory) topic.Store { return &faulty{Memory: m, make: make} }
	}
	memory := func(s topic.Store) *Memory {
		if f, ok := s.(*faulty); ok {
			return f.Memory
		}
		return s.(*Memory)
	}
	return Factory{
		Open: func(testing.TB) topic.Store { return open(NewMemory()) },
		Reopen: func(t testing.TB, s topic.Store) topic.Store {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			return open(memory(s).Reopen())
		},
		Crash: func(_ testing.TB, s topic.Store) topic.Store { return open(memory(s).Reopen()) },
	}
}

// TestMemory runs the suite against the store in memory.
func TestMemory(t *testing.T) {
	t.Parallel()
	Run(t, memoryFactory(""))
}

// faulty is a store in memory with one mistake.
type faulty struct {
	*Memory
	make func(l topic.Log, m topic.Meta) (topic.Log, topic.Meta)
}

func (f *faulty) OpenLog(ctx context.Context, name string, nodes []int32) (topic.Log, error) {
	l, err := f.Memory.OpenLog(ctx, name, nodes)
	if err != nil {
		return nil, err
	}
	l, _ = f.make(l, f.Memory.Meta())
	return l, nil
}

func (f *faulty) Meta() topic.Meta {
	_, m := f.make(nil, f.Memory.Meta())
	return m
}

// badLog and badMeta replace the operations that are set.
type badLog struct {
	topic.Log
	append func(topic.Entry, func(error))
	read   func(context.Context, uint64, int) ([]topic.Entry, error)
	trim   func(context.Context, uint64) error
	ends   func(context.Context) (uint64, uint64, error)
	wait   func(context.Context, uint64) error
}

func (l *badLog) Append(e topic.Entry, done func(error)) {
	if l.append == nil {
		l.Log.Append(e, done)
		return
	}
	l.append(e, done)
}

func (l *badLog) Read(ctx context.Context, from uint64, maxBytes int) ([]topic.Entry, error) {
	if l.read == nil {
		return l.Log.Read(ctx, from, maxBytes)
	}
	return l.read(ctx, from, maxBytes)
}

func (l *badLog) Trim(ctx context.Context, before uint64) error {
	if l.trim == nil {
		return l.Log.Trim(ctx, before)
	}
	return l.trim(ctx, before)
}

func (l *badLog) Ends(ctx context.Context) (uint64, uint64, error) {
	if l.ends == nil {
		return l.Log.Ends(ctx)
	}
	return l.ends(ctx)
}

func (l *badLog) Wait(ctx context.Context, sequence uint64) error {
	if l.wait == nil {
		return l.Log.Wait(ctx, sequence)
	}
	return l.wait(ctx, sequence)
}

type badMeta struct {
	topic.Meta
	put    func(context.Context, string, []byte, uint64) (uint64, error)
	delete func(context.Context, string, uint64) error
	list   func(context.Context, string) ([]topic.Item, error)
	watch  func(string, func()) func()
	// guards replaces the guards of writes.
	guards func(context.Context, []topic.Guard) ([]topic.Guard, error)
}

func (m *badMeta) Watch(prefix string, signal func()) (cancel func()) {
	if m.watch == nil {
		return m.Meta.Watch(prefix, signal)
	}
	return m.watch(prefix, signal)
}

func (m *badMeta) Put(ctx context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (uint64, error) {
	if m.guards != nil {
		var err error
		if guards, err = m.guards(ctx, guards); err != nil {
			return 0, err
		}
	}
	if m.put == nil {
		return m.Meta.Put(ctx, key, value, revision, guards...)
	}
	return m.put(ctx, key, value, revision)
}

func (m *badMeta) Delete(ctx context.Context, key string, revision uint64, guards ...topic.Guard) error {
	if m.delete == nil {
		return m.Meta.Delete(ctx, key, revision, guards...)
	}
	return m.delete(ctx, key, revision)
}

func (m *badMeta) List(ctx context.Context, prefix string) ([]topic.Item, error) {
	if m.list == nil {
		return m.Meta.List(ctx, prefix)
	}
	return m.list(ctx, prefix)
}

// fault is a mistake, and the groups of cases that must find it.
type fault struct {
	make   func(l topic.Log, m topic.Meta) (topic.Log, topic.Meta)
	groups []string
}

func logFault(groups []string, bad func(*badLog)) fault {
	return fault{func(l topic.Log, m topic.Meta) (topic.Log, topic.Meta) {
		b := &badLog{Log: l}
		bad(b)
		return b, m
	}, groups}
}

func metaFault(groups []string, bad func(*badMeta)) fault {
	return fault{func(l topic.Log, m topic.Meta) (topic.Log, topic.Meta) {
		b := &badMeta{Meta: m}
		bad(b)
		return l, b
	}, groups}
}

var (
	inLog  = "model of a log"
	inMeta = "model of the metadata"

	inHistories = "histories"
)

var faults = map[string]fault{
	"mark lost": logFault([]string{"append", "reopen", inLog}, func(l *badLog) {
		l.append = func(e topic.Entry, done func(error)) {
			e.Mark.Released = 0
			l.Log.Append(e, done)
		}
	}),
	"last byte lost": logFault([]string{"append", "read", "reopen", inLog}, func(l *badLog) {
		l.append = func(e topic.Entry, done func(error)) {
			e.Data = e.Data[:max(0, len(e.Data)-1)]
			l.Log.Append(e, done)
		}
	}),
	"reported before it is written": logFault([]string{"append", "fence"}, func(l *badLog) {
		l.append = func(e topic.Entry, done func(error)) { done(nil); l.Log.Append(e, func(error) {}) }
	}),
	"done from the caller": logFault([]string{"append"}, func(l *badLog) {
		l.append = func(e topic.Entry, done func(error)) {
			outcome := make(chan error, 1)
			l.Log.Append(e, func(err error) { outcome <- err })
			done(<-outcome)
		}
	}),
	"no fence": logFault([]string{"fence", "crash", inLog}, func(l *badLog) {
		l.append = func(e topic.Entry, done func(error)) {
			_, last, _ := l.Log.Ends(context.Background())
			e.Sequence = last + 1
			l.Log.Append(e, done)
		}
	}),
	"fenced for another reason": logFault([]string{"fence", inLog}, func(l *badLog) {
		l.append = func(e topic.Entry, done func(error)) {
			l.Log.Append(e, func(err error) {
				if err != nil {
					err = topic.ErrFull
				}
				done(err)
			})
		}
	}),
	"read skips one": logFault([]string{"read", inLog}, func(l *badLog) {
		l.read = func(ctx context.Context, from uint64, maxBytes int) ([]topic.Entry, error) {
			return l.Log.Read(ctx, from+1, maxBytes)
		}
	}),
	"read ignores the size": logFault([]string{"read", inLog}, func(l *badLog) {
		l.read = func(ctx context.Context, from uint64, _ int) ([]topic.Entry, error) {
			return l.Log.Read(ctx, from, 1<<40)
		}
	}),
	"read of one each": logFault([]string{"read"}, func(l *badLog) {
		l.read = func(ctx context.Context, from uint64, _ int) ([]topic.Entry, error) { return l.Log.Read(ctx, from, 0) }
	}),
	"trim does nothing": logFault([]string{"trim", "crash", inLog}, func(l *badLog) {
		l.trim = func(context.Context, uint64) error { return nil }
	}),
	"trim takes one more": logFault([]string{"trim", inLog}, func(l *badLog) {
		l.trim = func(ctx context.Context, before uint64) error { return l.Log.Trim(ctx, before+1) }
	}),
	"an empty log forgets its last": logFault([]string{"trim", "reopen", inLog}, func(l *badLog) {
		l.ends = func(ctx context.Context) (uint64, uint64, error) {
			first, last, err := l.Log.Ends(ctx)
			if first > last {
				return 1, 0, err
			}
			return first, last, err
		}
	}),
	"wait does not": logFault([]string{"wait"}, func(l *badLog) {
		l.wait = func(context.Context, uint64) error { return nil }
	}),
	"last writer wins": metaFault([]string{"meta", "reopen", inMeta}, func(m *badMeta) {
		m.put = func(ctx context.Context, key string, value []byte, _ uint64) (uint64, error) {
			item, _ := m.Meta.Get(ctx, key)
			return m.Meta.Put(ctx, key, value, item.Revision)
		}
	}),
	"delete ignores the revision": metaFault([]string{"meta", inMeta}, func(m *badMeta) {
		m.delete = func(ctx context.Context, key string, _ uint64) error {
			item, _ := m.Meta.Get(ctx, key)
			return m.Meta.Delete(ctx, key, item.Revision)
		}
	}),
	"delete leaves an empty value": metaFault([]string{"meta", "crash", inMeta}, func(m *badMeta) {
		m.delete = func(ctx context.Context, key string, revision uint64) error {
			_, err := m.Meta.Put(ctx, key, nil, revision)
			return err
		}
	}),
	"list has no order": metaFault([]string{"meta", inMeta}, func(m *badMeta) {
		m.list = func(ctx context.Context, prefix string) ([]topic.Item, error) {
			items, err := m.Meta.List(ctx, prefix)
			slices.Reverse(items)
			return items, err
		}
	}),
	"list by whole parts": metaFault([]string{"meta", inMeta}, func(m *badMeta) {
		m.list = func(ctx context.Context, prefix string) ([]topic.Item, error) {
			return m.Meta.List(ctx, prefix[:strings.LastIndexByte(prefix, '/')+1])
		}
	}),
	"guards are ignored": metaFault([]string{"guards", "histories"}, func(m *badMeta) {
		m.guards = func(context.Context, []topic.Guard) ([]topic.Guard, error) { return nil, nil }
	}),
	"only the first guard counts": metaFault([]string{"guards"}, func(m *badMeta) {
		m.guards = func(_ context.Context, guards []topic.Guard) ([]topic.Guard, error) {
			return guards[:min(len(guards), 1)], nil
		}
	}),
	"guards of what does not exist hold": metaFault([]string{"guards"}, func(m *badMeta) {
		m.guards = func(ctx context.Context, guards []topic.Guard) ([]topic.Guard, error) {
			return slices.DeleteFunc(guards, func(g topic.Guard) bool {
				_, err := m.Meta.Get(ctx, g.Key)
				return errors.Is(err, topic.ErrNotFound)
			}), nil
		}
	}),
	"guards are looked at before": metaFault([]string{"guards"}, func(m *badMeta) {
		m.guards = func(ctx context.Context, guards []topic.Guard) ([]topic.Guard, error) {
			for _, g := range guards {
				if item, _ := m.Meta.Get(ctx, g.Key); item.Revision != g.Revision {
					return nil, topic.ErrConflict
				}
			}
			<-time.After(time.Millisecond)
			return nil, nil
		}
	}),
	"watches of whole parts": metaFault([]string{"watches"}, func(m *badMeta) {
		m.watch = func(prefix string, signal func()) func() {
			return m.Meta.Watch(prefix[:strings.LastIndexByte(prefix, '/')+1]+"a", signal)
		}
	}),
	"watches tell once": metaFault([]string{"watches"}, func(m *badMeta) {
		m.watch = func(prefix string, signal func()) func() {
			var once sync.Once
			return m.Meta.Watch(prefix, func() { once.Do(signal) })
		}
	}),
	"watches go on": metaFault([]string{"watches"}, func(m *badMeta) {
		m.watch = func(prefix string, signal func()) func() {
			m.Meta.Watch(prefix, signal)
			return func() {}
		}
	}),
	"list of two moments": metaFault([]string{"concurrent"}, func(m *badMeta) {
		m.list = func(ctx context.Context, prefix string) ([]topic.Item, error) { return torn(ctx, m.Meta, prefix) }
	}),
}

// torn lists, waits until something has changed, and lists the rest.
func torn(ctx context.Context, m topic.Meta, prefix string) ([]topic.Item, error) {
	before, err := m.List(ctx, prefix)
	if err != nil || len(before) == 0 {
		return before, err
	}
	tornMu.Lock()
	defer tornMu.Unlock()
	items := map[string]topic.Item{}
	for _, item := range before {
		items[item.Key] = item
	}
	for range 1000 {
		after, err := m.List(ctx, prefix)
		if err != nil {
			return nil, err
		}
		for _, item := range after {
			items[item.Key] = item
		}
		if len(items) > len(before) {
			break
		}
	}
	var all []topic.Item
	for _, key := range slices.Sorted(maps.Keys(items)) {
		all = append(all, items[key])
	}
	return all, nil
}

var tornMu sync.Mutex

// TestFaults gives the store in memory one fault at a time, and checks that the suite
// finds it.
func TestFaults(t *testing.T) {
	expectFailures(t)
	for name, fault := range faults {
		for _, group := range fault.groups {
			t.Run(name+" by "+group, func(t *testing.T) {
				if !finds(t, func(tb testing.TB) { runGroup(tb, memoryFactory(name), group) }) {
					t.Fatalf("%s passes a store with the fault %q", group, name)
				}
			})
		}
	}
}

// expectFailures makes checks find faults reliably, and stop waiting soon.
func expectFailures(t *testing.T) {
	t.Setenv(longVariable, "1")
	t.Cleanup(rapidtest.Checks(100, 100))
	for name, value := range map[string]string{"rapid.nofailfile": "true", "rapid.shrinktime": "1ms"} {
		option := flag.Lookup(name)
		before := option.Value.String()
		if err := option.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = option.Value.Set(before) })
	}
	before := patience
	patience = 200 * time.Millisecond
	t.Cleanup(func() { patience = before })
}

// runGroup runs one group of the suite, up to its first failure.
func runGroup(t testing.TB, factory Factory, name string) {
	switch name {
	case inLog:
		checkLog(t, factory)
	case inMeta:
		checkMeta(t, factory)
	case inHistories:
		checkOneHistory(t, factory)
	case "reopen", "crash":
		for _, c := range restartCases {
			k := newKit(t, factory)
			c.run(k, func() { k.restart(name) })
		}
	default:
		for _, group := range slices.Concat(logGroups, metaGroups) {
			if group.name == name {
				for _, c := range group.cases {
					c.run(newKit(t, factory))
				}
				return
			}
		}
		panic("there is no group " + name)
	}
}

// unlucky is how often a part that is random may find nothing, where once in ten is much.
const unlucky = 20

// finds reports whether a part finds a fault.
func finds(t *testing.T, part func(testing.TB)) bool {
	t.Helper()
	for range unlucky {
		if fails(t, part) {
			return true
		}
	}
	return false
}

// fails reports whether a test fails. A test that panics fails t.
func fails(t *testing.T, test func(testing.TB)) bool {
	t.Helper()
	r := &recorder{TB: t}
	var broke any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { broke = recover() }()
		defer r.clean()
		test(r)
	}()
	<-done
	if broke != nil {
		t.Fatalf("the suite broke instead of failing: %v", broke)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t.Log(r.why)
	return r.failed
}

// recorder is a test that may fail.
type recorder struct {
	testing.TB

	mu       sync.Mutex
	failed   bool
	why      string // of the first failure
	cleanups []func()
}

func (r *recorder) fail(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.failed {
		r.failed, r.why = true, why
	}
}

func (r *recorder) clean() {
	for i := range r.cleanups {
		r.cleanups[len(r.cleanups)-1-i]()
	}
}

func (r *recorder) Failed() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.failed
}

func (r *recorder) Cleanup(f func())             { r.cleanups = append(r.cleanups, f) }
func (r *recorder) Error(args ...any)            { r.fail(fmt.Sprint(args...)) }
func (r *recorder) Errorf(f string, args ...any) { r.fail(fmt.Sprintf(f, args...)) }
func (r *recorder) Fail()                        { r.fail("") }
func (r *recorder) Fatal(args ...any)            { r.fail(fmt.Sprint(args...)); runtime.Goexit() }
func (r *recorder) Fatalf(f string, args ...any) { r.fail(fmt.Sprintf(f, args...)); runtime.Goexit() }
func (r *recorder) FailNow()                     { r.fail(""); runtime.Goexit() }
func (r *recorder) Helper()                      {}
func (r *recorder) Log(...any)                   {}
func (r *recorder) Logf(string, ...any)          {}

// TestMade runs the part about logs that begin at a sequence.
func TestMade(t *testing.T) { RunMade(t, memoryFactory("")) }
