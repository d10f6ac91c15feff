package natsstore

import (
	"errors"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// views are the nodes' views of the metadata.
func (ns *nodes) views() []topic.Meta {
	var all []topic.Meta
	for _, node := range ns.running() {
		all = append(all, ns.node(node).meta)
	}
	return all
}

// writer returns a node but one that believes to write the metadata, 0 if none does.
func (ns *nodes) writer(but int32) int32 {
	for _, node := range ns.running() {
		m := ns.node(node).meta
		m.mu.RLock()
		writes := m.nodes.writes
		m.mu.RUnlock()
		if node != but && writes && m.nodes.leads() {
			return node
		}
	}
	return 0
}

// waitWriter waits until a node writes that is not that one.
func (ns *nodes) waitWriter(t testing.TB, not int32) (node int32) {
	t.Helper()
	eventually(t, "a node writes the metadata", func() bool {
		node = ns.writer(not)
		return node != 0
	})
	return node
}

// replicated waits until the metadata is kept on three nodes.
func (ns *nodes) replicated(t testing.TB) {
	t.Helper()
	eventually(t, "the metadata has three replicas", func() bool {
		info, err := ns.node(1).info(t.Context(), metaStream)
		return err == nil && len(replicasOf(info).Current) == 3 && !replicasOf(info).Moving
	})
}

func (ns *nodes) moveWriter(t testing.TB) {
	t.Helper()
	before := ns.waitWriter(t, 0)
	eventually(t, "the writer steps down", func() bool {
		return ns.node(before).cluster.stepDown(t.Context(), metaStream, before%3+1) == nil
	})
	ns.waitWriter(t, before)
}

// TestMetaNodes runs the suite on three nodes, whose writer changes, is cut off,
// and stops, and of which another is cut off.
func TestMetaNodes(t *testing.T) {
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = 2 * time.Second })
	ns.replicated(t)
	storetest.RunMetaNodes(t, ns.views(),
		storetest.Disturbance{Name: "while the writer changes", Do: func(t testing.TB) {
			for range 10 {
				ns.moveWriter(t)
			}
		}},
		storetest.Disturbance{Name: "while a follower is cut off", Do: func(t testing.TB) {
			follower := ns.waitWriter(t, 0)%3 + 1
			ns.cut(follower, true)
			<-time.After(time.Second)
			ns.cut(follower, false)
			ns.waitAlive(3)
		}},
		storetest.Disturbance{Name: "while the writer is cut off", Do: func(t testing.TB) {
			before := ns.waitWriter(t, 0)
			ns.cut(before, true)
			ns.waitWriter(t, before)
			ns.cut(before, false)
			ns.waitAlive(3)
		}},
	)
}

// TestMetaNodesThatMiss runs what can happen to nodes that miss something.
func TestMetaNodesThatMiss(t *testing.T) {
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = 2 * time.Second })
	ns.replicated(t)
	t.Run("requests", ns.refuseRequests)
	t.Run("answers", ns.missAnswers)
	t.Run("announcements", ns.missAnnouncements)
	t.Run("large entries", ns.missLargeEntries)
	t.Run("what was cleaned away", ns.missCleaned)
	t.Run("the writer", ns.missWriter)
}

// missAnswers has changes made without telling those who wait: they learn it when
// there is another writer, or by asking the same one.
func (ns *nodes) missAnswers(t *testing.T) {
	for _, again := range []bool{false, true} {
		writer := ns.waitWriter(t, 0)
		m, other := ns.node(writer).meta, ns.node(writer%3+1).meta
		eventually(t, "the other knows who writes", func() bool { return other.Sync(t.Context()) == nil })
		key := fmt.Sprint("unanswered", again)
		revision := mustPut(t, other, key, "1", 0)
		m.mu.RLock()
		term := m.nodes.term
		m.mu.RUnlock()
		silent := make(chan bool)
		taken := m.requested(term)
		if err := ns.node(writer).meta.nodes.requests.Unsubscribe(); err != nil {
			t.Fatal(err)
		}
		replaced, err := m.nodes.conn.Subscribe(writeSubject+"."+strconv.FormatUint(term, 10), func(message *nats.Msg) {
			select {
			case <-silent:
			default:
				message.Reply = ""
			}
			taken(message)
		})
		if err == nil {
			err = m.nodes.conn.Flush() // what comes before it is there would come to nothing
		}
		if err != nil {
			t.Fatal(err)
		}
		outcome := make(chan error, 1)
		go func() {
			_, err := other.Put(t.Context(), key, []byte("2"), revision)
			outcome <- err
		}()
		eventually(t, "the put is made", func() bool {
			item, err := m.Get(t.Context(), key)
			return err == nil && string(item.Value) == "2"
		})
		if again {
			close(silent)
		} else {
			ns.moveWriter(t)
		}
		wantUncertain(t, <-outcome)
		item, err := other.Get(t.Context(), key)
		if err != nil || string(item.Value) != "2" {
			t.Fatalf("it is %q: %v", item.Value, err)
		}
		_ = replaced.Unsubscribe()
	}
}

// refuseRequests sends the writer what it does not take.
func (ns *nodes) refuseRequests(t *testing.T) {
	m := ns.node(ns.waitWriter(t, 0)).meta
	conn := ns.node(1).meta.nodes.conn
	m.mu.RLock()
	subject := writeSubject + "." + strconv.FormatUint(m.nodes.term, 10)
	m.mu.RUnlock()
	send := func(data []byte, want error) {
		t.Helper()
		message, err := conn.Request(subject, data, patience)
		if err != nil {
			t.Fatal(err)
		}
		if a, err := decodeAnswer(message.Data); err != nil || !errors.Is(a.err, want) {
			t.Fatalf("answer %+v, want %v: %v", a, want, err)
		}
	}
	put := writeRequest{operation: operation{stored: stored{Key: "refused", Value: []byte{}}}}
	late, err := put.encode()
	if err != nil {
		t.Fatal(err)
	}
	put.Within = time.Minute
	inTime, err := put.encode()
	if err != nil {
		t.Fatal(err)
	}
	send([]byte("nonsense"), errFailed)
	send(late, errTurnedBack)
	if err := m.room.Acquire(t.Context(), waitingBytes); err != nil {
		t.Fatal(err)
	}
	send(inTime, errTurnedBack)
	m.room.Release(waitingBytes)
	if _, err := m.Get(t.Context(), "refused"); !errors.Is(err, topic.ErrNotFound) {
		t.Fatalf("what was refused is there: %v", err)
	}
	send(inTime, nil)
	send(inTime, topic.ErrConflict)
}

func wantUncertain(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, topic.ErrUncertain) {
		t.Fatalf("error is %v, want ErrUncertain", err)
	}
}

// missAnnouncements takes some from a node: it finds what they said by the next.
func (ns *nodes) missAnnouncements(t *testing.T) {
	writer := ns.waitWriter(t, 0)
	m, other := ns.node(writer).meta, ns.node(writer%3+1).meta
	m.nodes.conn.Close() // it cannot announce, nor take requests
	conn, err := connect(ns.node(writer).engine, m.store.options.Logger)
	if err != nil {
		t.Fatal(err)
	}
	revision := mustPut(t, m, "unannounced", "1", 0)
	t.Cleanup(conn.Close)
	m.mu.RLock()
	a := announcement{Term: m.nodes.term, Sequence: m.state.last}
	m.mu.RUnlock()
	if _, err := other.Get(t.Context(), "unannounced"); !errors.Is(err, topic.ErrNotFound) {
		t.Fatalf("what was not announced is known: %v", err)
	}
	if err := conn.Publish(entrySubject, a.encode()); err != nil {
		t.Fatal(err)
	}
	eventually(t, "what was missed is found", func() bool {
		item, err := other.Get(t.Context(), "unannounced")
		return err == nil && item.Revision == revision
	})
	ns.stop(writer)
	ns.start(int(writer))
	ns.waitAlive(3)
	ns.replicated(t)
}

// missLargeEntries puts values that are not announced as a whole.
func (ns *nodes) missLargeEntries(t *testing.T) {
	value := strings.Repeat("0123456789abcdef", maxValueBytes/16)
	for node := range ns.dirs {
		key := fmt.Sprint("large", node)
		revision := mustPut(t, ns.node(int32(node+1)).meta, key, value, 0)
		for _, m := range ns.views() {
			if err := m.Sync(t.Context()); err != nil {
				t.Fatal(err)
			}
			item, err := m.Get(t.Context(), key)
			if err != nil || item.Revision != revision || string(item.Value) != value {
				t.Fatalf("a value of %d bytes at %d, want %d at %d: %v", len(item.Value), item.Revision, len(value), revision, err)
			}
		}
		if err := ns.node(int32(node+1)).meta.Delete(t.Context(), key, revision); err != nil {
			t.Fatal(err)
		}
	}
}

// missCleaned cuts a node off until what it needs next is cleaned away.
func (ns *nodes) missCleaned(t *testing.T) {
	writer := ns.waitWriter(t, 0)
	away := ns.node(writer%3 + 1)
	mustPut(t, away.meta, "stays", "1", 0)
	gone := mustPut(t, away.meta, "goes", "1", 0)
	var told atomic.Int64
	defer away.meta.Watch("goes", func() { told.Add(1) })()
	ns.cut(writer%3+1, true)
	m := ns.node(writer).meta
	if err := m.Delete(t.Context(), "goes", gone); err != nil {
		t.Fatal(err)
	}
	before := told.Load()
	away.meta.mu.RLock()
	last := away.meta.state.last
	away.meta.mu.RUnlock()
	CleanAtOnce(ns.node(writer))
	want := churn(t, m)
	for round := 0; ; round++ {
		first, _, err := m.log.Ends(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if first > last+1 {
			break
		}
		if round == 1000 {
			t.Fatalf("the log begins at %d, the node has %d", first, last)
		}
		want["more"] = topic.Item{Key: "more", Value: []byte("x"), Revision: mustPut(t, m, "more", "x", want["more"].Revision)}
	}
	ns.cut(writer%3+1, false)
	eventually(t, "the node has all", func() bool {
		for key, item := range want {
			if got, err := away.meta.Get(t.Context(), key); err != nil || got.Revision != item.Revision {
				return false
			}
		}
		_, err := away.meta.Get(t.Context(), "goes")
		return errors.Is(err, topic.ErrNotFound)
	})
	eventually(t, "it tells of what was deleted meanwhile", func() bool { return told.Load() > before })
	if err := away.meta.Sync(t.Context()); err != nil {
		t.Fatal(err)
	}
	mine, err := m.List(t.Context(), "")
	theirs, err2 := away.meta.List(t.Context(), "")
	if err := errors.Join(err, err2); err != nil || !reflect.DeepEqual(mine, theirs) {
		t.Fatalf("the nodes differ: %d items and %d: %v", len(mine), len(theirs), err)
	}
	ns.waitAlive(3)
}

// missWriter stops the node that writes: others go on, and when it is back it has
// what they wrote.
func (ns *nodes) missWriter(t *testing.T) {
	writer := ns.waitWriter(t, 0)
	other := ns.node(writer%3 + 1).meta
	revision := mustPut(t, other, "writer", "1", 0)
	eventually(t, "the writer leaves", func() bool { return ns.node(writer).cluster.Leave(t.Context()) == nil })
	revision = putSurely(t, other, "writer", "2", revision)
	ns.stop(writer)
	revision = putSurely(t, other, "writer", "3", revision)
	ns.start(int(writer))
	item, err := ns.node(writer).meta.Get(t.Context(), "writer")
	if err != nil || item.Revision != revision {
		t.Fatalf("key is %q at %d, want revision %d: %v", item.Value, item.Revision, revision, err)
	}
}

// putSurely puts a value through what makes the outcome of a try uncertain.
func putSurely(t *testing.T, m topic.Meta, key, value string, revision uint64) uint64 {
	t.Helper()
	eventually(t, "a value is put", func() bool {
		next, err := m.Put(t.Context(), key, []byte(value), revision)
		if err == nil {
			revision = next
			return true
		}
		if !errors.Is(err, topic.ErrUncertain) {
			t.Fatal(err)
		}
		item, err := m.Get(t.Context(), key) // waits until it is known what came of it
		if err != nil || string(item.Value) != value {
			return false
		}
		revision = item.Revision
		return true
	})
	return revision
}

// BenchmarkMetaNodes puts on the node that writes, and on another.
func BenchmarkMetaNodes(b *testing.B) {
	ns := startNodes(b, 3, func(o *Options) { o.SyncInterval = 0 })
	ns.replicated(b)
	writer := ns.waitWriter(b, 0)
	for name, node := range map[string]int32{"writer": writer, "other": writer%3 + 1} {
		for _, atOnce := range []int{1, 64} {
			b.Run(fmt.Sprintf("%s/%d", name, atOnce), func(b *testing.B) {
				m := ns.node(node).meta
				var next atomic.Int64
				var work sync.WaitGroup
				for worker := range atOnce {
					key := fmt.Sprint(name, atOnce, b.N, "/", worker)
					work.Go(func() {
						for revision := uint64(0); next.Add(1) <= int64(b.N); {
							var err error
							if revision, err = m.Put(b.Context(), key, make([]byte, 200), revision); err != nil {
								b.Error(err)
								return
							}
						}
					})
				}
				work.Wait()
			})
		}
	}
}
