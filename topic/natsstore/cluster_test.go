package natsstore

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// part is a store inside the store of a node, with its own logs on fixed nodes. As in production,
// the name of a log that was deleted is not used again: the engine may still have the log on a busy
// node, or may get a deletion again that was repeated.
type part struct {
	*Store
	t       testing.TB
	prefix  string
	on      []int32
	closed  atomic.Bool
	deleted sync.Map // by name: how often
}

func (p *part) OpenLog(_ context.Context, name string, nodes []int32) (topic.Log, error) {
	if p.closed.Load() {
		return nil, topic.ErrClosed
	}
	if len(nodes) > 0 {
		nodes = p.on
	}
	return openReached(p.t, p.Store, p.own(name), nodes)
}

func (p *part) DeleteLog(ctx context.Context, name string) error {
	err := p.Store.DeleteLog(ctx, p.own(name))
	if err == nil {
		p.deleted.Store(name, p.deletions(name)+1)
	}
	return err
}

func (p *part) deletions(name string) int {
	count, _ := p.deleted.LoadOrStore(name, 0)
	return count.(int)
}

// own returns the name of a log in the node's store. It shortens the longest names at the front.
func (p *part) own(name string) string {
	prefix := fmt.Sprint(p.prefix, p.deletions(name), "-")
	return prefix + name[max(0, len(prefix)+len(name)-200):]
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

// TestCluster runs tests on one cluster that do not disturb each other: the suite of logs
// through a node that is one of three replicas, none, or with SLUICE_LONG the only one; the suite of the
// metadata; and tests with logs of their own.
func TestCluster(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, nil)
	ns.replicated(t)
	logs := func(on ...int32) func(*testing.T, *nodes) {
		return func(t *testing.T, ns *nodes) { logsOn(t, ns, on) }
	}
	tests := map[string]func(*testing.T, *nodes){
		"logs shared": logs(1, 2, 3), "logs elsewhere": logs(2),
		"metadata":               func(t *testing.T, ns *nodes) { storetest.RunMetaNodes(t, ns.views()) },
		"dropped":                droppedAppends,
		"sent twice":             appendsSentTwice,
		"refused after a resend": refusedAfterResend,
		"other replicas":         appendsWhileReplicasChange,
		"disputed":               refusedByStaleLeader,
		"deleted":                deletedByAnother,
		"followed":               followedIsKnownToOthers,
		"replicated apart":       replicatedApart,
	}
	if os.Getenv("SLUICE_LONG") != "" { // a leader at hand has shared logs too, and logs elsewhere have one replica too
		tests["logs alone"] = logs(1)
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t, ns.in(t))
		})
	}
}

// logsOn runs the suite through node 1 on logs that these nodes keep. Each check of a
// property makes a Raft group.
func logsOn(t *testing.T, ns *nodes, on []int32) {
	parts := 0
	storetest.RunLogs(t, storetest.Factory{Open: func(t testing.TB) topic.Store {
		parts++
		return &part{Store: ns.node(1), t: t, prefix: fmt.Sprint("on", on[0], "of", len(on), "-", parts, "-"), on: on}
	}})
}

// writer appends numbered entries to a log through a node, several at a time, and continues
// after failures as a partition does.
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

// more waits until n more entries are acknowledged.
func (w *writer) more(n uint64) {
	w.t.Helper()
	from := w.acked.Load()
	until.True(w.t, fmt.Sprintf("%d more entries after %d", n, from), func() bool { return w.acked.Load() >= from+n })
}

// end stops the writer and returns the last acknowledged sequence.
func (w *writer) end() uint64 {
	close(w.stop)
	<-w.done
	return w.acked.Load()
}

// checkNumbered reads a log through a node, and checks that its entries have no gaps, the
// right content, and include all acknowledged ones.
func checkNumbered(t testing.TB, l *log, reported uint64) {
	t.Helper()
	var last uint64
	until.Succeeds(t, "the ends", func() (err error) {
		_, last, err = l.Ends(t.Context())
		return err
	})
	if last < reported {
		t.Fatalf("the log ends at %d, %d was acknowledged", last, reported)
	}
	for from := uint64(1); from <= last; {
		var entries []topic.Entry
		until.Succeeds(t, "a read", func() (err error) {
			entries, err = l.Read(t.Context(), from, 1<<14) // what a busy machine reads within a short Options.Timeout
			return err
		})
		if len(entries) == 0 {
			t.Fatalf("read from %d of %d: no entries", from, last)
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
	ns.log(1, "log", 1, 2, 3)
	leader := ns.leader("log")
	other := leader%3 + 1
	w := startWriter(t, ns.log(other, "log"))
	w.more(100)
	deposed := ns.log(leader, "log")

	ns.cut(leader, true)
	began := time.Now()
	until.True(t, "others alone", func() bool { return len(ns.node(other).Cluster().Alive()) == 2 })
	t.Logf("missed after %v", time.Since(began))
	_, last, _ := deposed.Ends(t.Context())
	outcomes := send(deposed, last+1)
	next := ns.leader("log", other, other%3+1)
	t.Logf("node %d leads instead of %d after %v", next, leader, time.Since(began))
	if next == leader {
		t.Fatal("it leads still")
	}
	// Entries of the other node may have come first.
	if err := <-outcomes; !errors.Is(err, topic.ErrUncertain) && !errors.Is(err, topic.ErrFenced) {
		t.Fatalf("append to the one that was cut off: %v", err)
	}
	if _, _, err := deposed.Ends(t.Context()); errors.Is(err, topic.ErrNoLog) {
		t.Errorf("the log looks deleted where nobody leads it: %v", err)
	}
	w.more(100)
	until.Succeeds(t, "the others lead without it", func() error {
		r, err := ns.node(other).Cluster().Replicas(t.Context(), "log")
		if err == nil && (slices.Contains(r.Current, leader) || r.Leader == leader) {
			err = fmt.Errorf("replicas: %+v", r)
		}
		return err
	})

	ns.cut(leader, false)
	ns.waitAlive(3)
	w.more(100)
	reported := w.end()
	until.True(t, "all current", func() bool {
		r, err := ns.node(leader).Cluster().Replicas(t.Context(), "log")
		return err == nil && len(r.Current) == 3
	})
	for node := range int32(3) {
		l := ns.log(node+1, "log")
		until.True(t, "the end is known", func() bool { // not from the one that was deposed
			_, last, err := l.Ends(t.Context())
			return err == nil && last >= reported
		})
		checkNumbered(t, l, reported)
	}
}

// TestResign transfers the leadership of a log several times while entries are appended.
func TestResign(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = 3 * time.Second })
	w := startWriter(t, ns.log(1, "log", 1, 2, 3))
	var signals [3]atomic.Int32
	for node := range int32(3) {
		defer ns.node(node + 1).Cluster().Watch(func() { signals[node].Add(1) })()
	}
	asked := 0
	until.True(t, "nodes that were asked for lead", func() bool {
		w.more(50)
		leader := ns.leader("log")
		to := leader%3 + 1
		before := signals[to-1].Load()
		began := time.Now()
		if err := ns.node(leader).Cluster().Resign(t.Context(), "log", to); err != nil {
			t.Logf("resign: %v", err)
			return false
		}
		got := ns.leader("log")
		t.Logf("from %d to %d, asked for %d, within %v", leader, got, to, time.Since(began))
		if got == to { // otherwise it was behind just then, or there was another election
			asked++
			until.True(t, "a signal", func() bool { return signals[to-1].Load() > before })
		}
		return asked == 2
	})
	checkNumbered(t, ns.log(2, "log"), w.end())
	ns.log(1, "single", 2)
	leader := ns.leader("single")
	if err := ns.node(leader).Cluster().Resign(t.Context(), "single", 0); err == nil {
		t.Error("a log with one replica has nobody else to lead it")
	}
}

// TestLeave makes a node transfer all its leaderships, stop, and start again.
func TestLeave(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = 3 * time.Second })
	for i := range 6 {
		ns.log(1, fmt.Sprint("log", i), 1, 2, 3)
	}
	leader := ns.leader("log0")
	other := leader%3 + 1
	w := startWriter(t, ns.log(other, "log0"))
	w.more(50)
	s := ns.node(leader)
	until.True(t, "the metadata on all", func() bool {
		info, err := s.info(t.Context(), metaStream)
		return err == nil && info.Config.Replicas == 3 && len(replicasOf(info).Current) == 3
	})
	began := time.Now()
	until.Succeeds(t, "it leads nothing", func() error { // again if the others lacked entries just then
		err := s.Cluster().Leave(t.Context())
		for _, name := range []string{"meta", "log-log0", "log-log1", "log-log2", "log-log3", "log-log4", "log-log5"} {
			if s.engine.leads(name) {
				err = errors.Join(err, fmt.Errorf("it leads %s still", name))
			}
		}
		if s.engine.JetStreamIsLeader() {
			err = errors.Join(err, errors.New("it leads the engine's metadata still"))
		}
		return err
	})
	t.Logf("left within %v", time.Since(began))
	until.True(t, "others alone", func() bool { return len(ns.node(other).Cluster().Alive()) == 2 })
	ns.stop(leader)
	w.more(50)
	t.Logf("%v from leaving to appends", time.Since(began))
	ns.start(int(leader))
	ns.waitAlive(3)
	checkNumbered(t, ns.log(leader, "log0"), w.end())
}

// deletedByAnother deletes a log through another node, and makes it again.
func deletedByAnother(t *testing.T, ns *nodes) {
	const name = "deleted"
	one := ns.log(1, name, 1, 2, 3)
	two := ns.log(2, name)
	wantOutcomes(t, send(one, 1, 2, 3), nil, nil, nil)
	if err := ns.node(2).DeleteLog(t.Context(), name); err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, send(two, 4), topic.ErrNoLog)
	until.True(t, "node 1 has removed its replica", func() bool {
		_, err := one.Read(t.Context(), 1, 1)
		return errors.Is(err, topic.ErrNoLog)
	})
	if _, err := ns.node(1).OpenLog(t.Context(), name, nil); !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("open: %v", err)
	}
	again := ns.log(2, name, 1, 3)
	wantOutcomes(t, send(again, 1), nil)
	if _, _, err := one.Ends(t.Context()); !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("the log that was deleted: %v", err)
	}
	wantOutcomes(t, send(ns.log(1, name), 2), nil)
	if _, err := ns.node(1).Cluster().Replicas(t.Context(), "none"); !errors.Is(err, topic.ErrNoLog) {
		t.Errorf("replicas of none: %v", err)
	}
}
