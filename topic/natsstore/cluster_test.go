package natsstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/rapidtest"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// part is a store with logs of its own in that of a node, which it makes on the
// same nodes always.
type part struct {
	*Store
	prefix string
	on     []int32
	closed atomic.Bool
}

func (p *part) OpenLog(ctx context.Context, name string, _ []int32) (topic.Log, error) {
	if p.closed.Load() {
		return nil, topic.ErrClosed
	}
	return p.Store.OpenLog(ctx, p.own(name), p.on)
}

func (p *part) DeleteLog(ctx context.Context, name string) error {
	return p.Store.DeleteLog(ctx, p.own(name))
}

// own is the name of a log in the store: the longest ones lose their begin.
func (p *part) own(name string) string {
	return p.prefix + name[max(0, len(p.prefix)+len(name)-200):]
}

// Close ends the logs only.
func (p *part) Close() error {
	p.closed.Store(true)
	p.mu.RLock()
	var own []*log
	for name, l := range p.logs {
		if len(name) > len(p.prefix) && name[:len(p.prefix)] == p.prefix {
			own = append(own, l)
		}
	}
	p.mu.RUnlock()
	for _, l := range own {
		l.end(topic.ErrClosed)
		l.drain()
	}
	return nil
}

// TestLogsOfACluster runs the suite through a node of three, on logs that it keeps
// alone, shares, and does not keep. Each check of a property makes a Raft
// group, and with SLUICE_LONG has ten times the rounds.
func TestLogsOfACluster(t *testing.T) {
	t.Cleanup(rapidtest.Checks(10, 5))
	ns := startNodes(t, 3, nil)
	for name, on := range map[string][]int32{"alone": {1}, "shared": {1, 2, 3}, "elsewhere": {2}} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			parts := 0
			storetest.RunLogs(t, storetest.Factory{Open: func(testing.TB) topic.Store {
				parts++
				return &part{Store: ns.node(1), prefix: fmt.Sprintf("%s-%d-", name, parts), on: on}
			}})
		})
	}
}

// writer appends numbered entries to a log through a node, some at a time, and goes
// on after failures as a partition does.
type writer struct {
	t     testing.TB
	acked atomic.Uint64 // the highest sequence that was reported as written
	next  atomic.Pointer[log]
	stop  chan struct{}
	done  chan struct{}
}

func startWriter(t testing.TB, l *log) *writer {
	w := &writer{t: t, stop: make(chan struct{}), done: make(chan struct{})}
	w.next.Store(l)
	go w.run()
	return w
}

func (w *writer) run() {
	defer close(w.done)
	const depth = 16
	outcomes := make(chan error, depth)
	for {
		select {
		case <-w.stop:
			return
		default:
		}
		l := w.next.Load()
		_, last, err := l.Ends(w.t.Context())
		if err != nil {
			continue // it has waited
		}
		for err == nil {
			for i := range uint64(depth) {
				l.Append(numbered(last+1+i), func(err error) { outcomes <- err })
			}
			for i := range uint64(depth) {
				if failed := <-outcomes; failed != nil {
					err = failed
				} else if err == nil {
					w.acked.Store(last + 1 + i)
				}
			}
			last += depth
			select {
			case <-w.stop:
				return
			case <-time.After(time.Millisecond):
			}
		}
		if !errors.Is(err, topic.ErrUncertain) && !errors.Is(err, topic.ErrFenced) {
			w.t.Errorf("append: %v", err)
			return
		}
	}
}

// more waits until so many more entries are written.
func (w *writer) more(n uint64) {
	w.t.Helper()
	from := w.acked.Load()
	eventually(w.t, fmt.Sprintf("%d more entries after %d", n, from), func() bool { return w.acked.Load() >= from+n })
}

// end stops it and returns the last entry that was reported.
func (w *writer) end() uint64 {
	close(w.stop)
	<-w.done
	return w.acked.Load()
}

// checkNumbered reads a log through a node: its entries must be dense, what was
// written to them, and all those that were reported.
func checkNumbered(t testing.TB, l *log, reported uint64) {
	t.Helper()
	_, last, err := l.Ends(t.Context())
	if err != nil || last < reported {
		t.Fatalf("the log ends at %d, %d was reported: %v", last, reported, err)
	}
	for from := uint64(1); from <= last; {
		entries, err := l.Read(t.Context(), from, 1<<20)
		if err != nil || len(entries) == 0 {
			t.Fatalf("read from %d of %d: %d entries: %v", from, last, len(entries), err)
		}
		for _, e := range entries {
			want := numbered(from)
			if e.Sequence != from || e.Mark != want.Mark || string(e.Data) != string(want.Data) {
				t.Fatalf("entry %d is %d with %q", from, e.Sequence, e.Data)
			}
			from++
		}
	}
}

// TestALeaderIsCutOff cuts the leader off from the others while entries are
// appended through another node, and through itself.
func TestALeaderIsCutOff(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = 3 * time.Second })
	ns.open(1, "log", 1, 2, 3)
	leader := ns.leader("log")
	other := leader%3 + 1
	w := startWriter(t, ns.open(other, "log"))
	w.more(100)
	deposed := ns.open(leader, "log")

	ns.cut(leader, true)
	began := time.Now()
	eventually(t, "others alone", func() bool { return len(ns.node(other).Cluster().Alive()) == 2 })
	t.Logf("missed after %v", time.Since(began))
	_, last, _ := deposed.Ends(t.Context())
	outcomes := send(deposed, last+1)
	next := ns.leader("log", other, other%3+1)
	t.Logf("node %d leads instead of %d after %v", next, leader, time.Since(began))
	if next == leader {
		t.Fatal("it leads still")
	}
	// Entries of the other node may have come before it.
	if err := <-outcomes; !errors.Is(err, topic.ErrUncertain) && !errors.Is(err, topic.ErrFenced) {
		t.Fatalf("append to the one that was cut off: %v", err)
	}
	if _, _, err := deposed.Ends(t.Context()); errors.Is(err, topic.ErrNoLog) {
		t.Errorf("the log looks deleted where nobody leads it: %v", err)
	}
	w.more(100)
	if r, err := ns.node(other).Cluster().Replicas(t.Context(), "log"); err != nil || slices.Contains(r.Current, leader) || r.Leader != next {
		t.Fatalf("replicas: %+v: %v", r, err)
	}

	ns.cut(leader, false)
	ns.waitAlive(3)
	w.more(100)
	reported := w.end()
	eventually(t, "all current", func() bool {
		r, err := ns.node(leader).Cluster().Replicas(t.Context(), "log")
		return err == nil && len(r.Current) == 3
	})
	for node := range int32(3) {
		l := ns.open(node+1, "log")
		eventually(t, "the end is known", func() bool { // not from the one that was deposed
			_, last, err := l.Ends(t.Context())
			return err == nil && last >= reported
		})
		checkNumbered(t, l, reported)
	}
}

// TestResign moves the lead of a log around while entries are appended.
func TestResign(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = 3 * time.Second })
	w := startWriter(t, ns.open(1, "log", 1, 2, 3))
	var signals [3]atomic.Int32
	for node := range int32(3) {
		defer ns.node(node + 1).Cluster().Watch(func() { signals[node].Add(1) })()
	}
	asked := 0
	for range 4 {
		w.more(50)
		leader := ns.leader("log")
		to := leader%3 + 1
		before := signals[to-1].Load()
		began := time.Now()
		if err := ns.node(leader).Cluster().Resign(t.Context(), "log", to); err != nil {
			t.Fatal(err)
		}
		if ns.node(leader).Cluster().Leads("log") {
			t.Fatal("it leads still")
		}
		got := ns.leader("log")
		t.Logf("from %d to %d, asked for %d, within %v", leader, got, to, time.Since(began))
		if got != to {
			continue // it was behind just then
		}
		asked++
		eventually(t, "a signal", func() bool { return signals[to-1].Load() > before })
	}
	if asked == 0 {
		t.Error("no node that was asked for led")
	}
	checkNumbered(t, ns.open(2, "log"), w.end())
	ns.open(1, "single", 2)
	leader := ns.leader("single")
	if err := ns.node(leader).Cluster().Resign(t.Context(), "single", 0); err == nil {
		t.Error("a log with one replica has nobody else to lead it")
	}
}

// TestLeave has a node hand over all that it leads, stop, and come back.
func TestLeave(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = 3 * time.Second })
	for i := range 6 {
		ns.open(1, fmt.Sprint("log", i), 1, 2, 3)
	}
	leader := ns.leader("log0")
	other := leader%3 + 1
	w := startWriter(t, ns.open(other, "log0"))
	w.more(50)
	s := ns.node(leader)
	eventually(t, "the metadata on all", func() bool {
		info, err := s.info(t.Context(), metaStream)
		return err == nil && info.Config.Replicas == 3 && len(replicasOf(info).Current) == 3
	})
	began := time.Now()
	if err := s.Cluster().Leave(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Logf("left within %v", time.Since(began))
	for _, name := range []string{"meta", "log-log0", "log-log1", "log-log2", "log-log3", "log-log4", "log-log5"} {
		if s.engine.leads(name) {
			t.Errorf("it leads %s still", name)
		}
	}
	if s.engine.JetStreamIsLeader() {
		t.Error("it leads the engine's metadata still")
	}
	eventually(t, "others alone", func() bool { return len(ns.node(other).Cluster().Alive()) == 2 })
	ns.stop(leader)
	w.more(50)
	t.Logf("%v from leaving to appends", time.Since(began))
	ns.start(int(leader))
	ns.waitAlive(3)
	checkNumbered(t, ns.open(leader, "log0"), w.end())
}

// TestDeletedByAnother deletes a log through another node, and makes it anew.
func TestDeletedByAnother(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = 3 * time.Second })
	one := ns.open(1, "log", 1, 2, 3)
	two := ns.open(2, "log")
	wantOutcomes(t, send(one, 1, 2, 3), nil, nil, nil)
	if err := ns.node(2).DeleteLog(t.Context(), "log"); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, send(two, 4), topic.ErrNoLog)
	if _, err := one.Read(t.Context(), 1, 1); !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("read: %v", err)
	}
	if _, err := ns.node(1).OpenLog(t.Context(), "log", nil); !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("open: %v", err)
	}
	anew := ns.open(2, "log", 1, 3)
	wantOutcomes(t, send(anew, 1), nil)
	if _, _, err := one.Ends(t.Context()); !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("the log that was deleted: %v", err)
	}
	wantOutcomes(t, send(ns.open(1, "log"), 2), nil)
	if _, err := ns.node(1).Cluster().Replicas(t.Context(), "none"); !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("replicas of none: %v", err)
	}
}

// TestWithoutALeaderNothingLooksDeleted cuts all nodes off from each other. With
// SLUICE_LONG: the engine takes its time to notice.
func TestWithoutALeaderNothingLooksDeleted(t *testing.T) {
	if os.Getenv("SLUICE_LONG") == "" {
		return
	}
	t.Parallel()
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = time.Second })
	l := ns.open(1, "log", 1, 2, 3)
	wantOutcomes(t, send(l, 1, 2), nil, nil)
	for node := range int32(3) {
		ns.cut(node+1, true)
	}
	eventually(t, "nobody leads", func() bool {
		for node := range int32(3) {
			if ns.node(node + 1).Cluster().Leads("log") {
				return false
			}
		}
		return true
	})
	s := ns.node(1)
	if got, err := l.Read(t.Context(), 1, 1<<20); len(got) != 2 || err != nil {
		t.Errorf("read from this node's own replica: %d entries: %v", len(got), err)
	}
	_, _, ends := l.Ends(t.Context())
	_, open := s.OpenLog(t.Context(), "another", []int32{1})
	_, replicas := s.Cluster().Replicas(t.Context(), "none")
	_, place := s.Cluster().Place(t.Context(), "log", []int32{1, 2})
	for call, err := range map[string]error{
		"ends": ends, "open": open, "append": <-send(l, 3), "trim": l.Trim(t.Context(), 2), "replicas": replicas, "place": place,
		"delete": s.DeleteLog(t.Context(), "log"),
	} {
		if err == nil || errors.Is(err, topic.ErrNoLog) || errors.Is(err, topic.ErrFenced) {
			t.Errorf("%s: %v", call, err)
		}
	}
	for node := range int32(3) {
		ns.cut(node+1, false)
	}
	ns.waitAlive(3)
	// The log may be deleted now: a request that was not answered may come later.
	eventually(t, "a log again", func() bool {
		_, err := ns.node(1).OpenLog(t.Context(), "log", []int32{1, 2, 3})
		return err == nil
	})
}
