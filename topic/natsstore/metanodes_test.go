package natsstore

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// views returns the running nodes' views of the metadata.
func (ns *nodes) views() []topic.Meta {
	var all []topic.Meta
	for _, node := range ns.running() {
		all = append(all, ns.node(node).meta)
	}
	return all
}

// writer returns a node other than but that counts itself as the writer of the metadata, 0 for none.
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

// waitWriter waits until a node other than not writes the metadata.
func (ns *nodes) waitWriter(t testing.TB, not int32) (node int32) {
	t.Helper()
	until.True(t, "a node writes the metadata", func() bool {
		node = ns.writer(not)
		return node != 0
	})
	return node
}

// replicated waits until the metadata has all its replicas.
func (ns *nodes) replicated(t testing.TB) {
	t.Helper()
	until.True(t, "the metadata has all its replicas", func() bool {
		info, err := ns.node(1).info(t.Context(), metaStream)
		return err == nil && len(replicasOf(info).Current) == metaReplicas(len(ns.dirs)) && !replicasOf(info).Moving
	})
}

// transferWriter ends the term of the writer. The same node may begin the next one.
func (ns *nodes) transferWriter(t testing.TB) {
	t.Helper()
	before := ns.waitWriter(t, 0)
	term, c := ns.term(before), ns.node(before).cluster
	until.True(t, "another term begins", func() bool {
		within, cancel := context.WithTimeout(t.Context(), transferAgain)
		defer cancel()
		return c.askToTransfer(t.Context(), metaStream, before%3+1) == nil && c.poll(within, func() bool {
			writer := ns.writer(0)
			return writer != 0 && ns.term(writer) > term
		}) == nil
	})
}

// term returns the newest term that a node knows.
func (ns *nodes) term(node int32) uint64 {
	m := ns.node(node).meta
	m.mu.RLock()
	defer m.mu.RUnlock()
	return m.nodes.term
}

// inOneTerm calls f with the writer, and fails the test with its error. If another term has begun
// in the meantime the error says nothing, and it calls f again.
func (ns *nodes) inOneTerm(t testing.TB, f func(writer int32, term uint64) error) {
	t.Helper()
	until.True(t, "a term lasts", func() bool {
		writer := ns.waitWriter(t, 0)
		term := ns.term(writer)
		err := f(writer, term)
		if err != nil && ns.writer(0) == writer && ns.term(writer) == term {
			t.Fatal(err)
		}
		return err == nil
	})
}

// TestMetaNodesDisturbed checks histories of the metadata while its writer changes and is
// cut off, and while another node is cut off.
func TestMetaNodesDisturbed(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = 2 * time.Second })
	ns.replicated(t)
	storetest.RunDisturbed(t, ns.views(),
		storetest.Disturbance{Name: "while the writer changes", Do: func(t testing.TB) {
			for range 10 {
				ns.transferWriter(t)
			}
		}},
		storetest.Disturbance{Name: "while a follower is cut off", Do: func(t testing.TB) {
			follower := ns.waitWriter(t, 0)%3 + 1
			ns.cut(follower, true)
			until.True(t, "others miss the follower", func() bool { return !ns.sees(follower%3+1, follower) })
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

// sees reports whether one node counts another as alive.
func (ns *nodes) sees(node, other int32) bool {
	return slices.Contains(ns.node(node).Cluster().Alive(), other)
}

// TestMetaNodesThatMiss runs cases of nodes that miss messages.
func TestMetaNodesThatMiss(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = 5 * time.Second })
	ns.replicated(t)
	for _, c := range []struct {
		name string
		run  func(*nodes, *testing.T)
	}{
		{"requests", (*nodes).refuseRequests}, {"answers", (*nodes).missAnswers}, {"announcements", (*nodes).missAnnouncements},
		{"large entries", (*nodes).missLargeEntries}, {"what was cleaned away", (*nodes).missCleaned}, {"the writer", (*nodes).missWriter},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(ns.in(t), t) })
	}
}

// missAnswers drops the answers to changes. The senders learn the outcome from the next
// writer, or from a barrier to the same one.
func (ns *nodes) missAnswers(t *testing.T) {
	for _, again := range []bool{false, true} {
		writer := ns.waitWriter(t, 0)
		m, other := ns.node(writer).meta, ns.node(writer%3+1).meta
		until.True(t, "the other knows who writes", func() bool { return other.Sync(t.Context()) == nil })
		key := fmt.Sprint("unanswered", again)
		revision := put(t, other, key, "1", 0)
		term := ns.term(writer)
		silent := make(chan bool)
		taken := m.handleRequests(term)
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
		until.True(t, "the put is made", func() bool {
			item, err := m.Get(t.Context(), key)
			return err == nil && string(item.Value) == "2"
		})
		if again {
			close(silent)
		} else {
			ns.transferWriter(t)
		}
		wantUncertain(t, <-outcome)
		var item topic.Item
		until.Succeeds(t, "the outcome is known", func() (err error) {
			item, err = other.Get(t.Context(), key)
			return err
		})
		if string(item.Value) != "2" {
			t.Fatalf("it is %q", item.Value)
		}
		_ = replaced.Unsubscribe()
	}
}

// refuseRequests sends the writer requests that it must refuse.
func (ns *nodes) refuseRequests(t *testing.T) {
	ns.inOneTerm(t, func(writer int32, term uint64) error {
		m, other := ns.node(writer).meta, ns.node(writer%3+1).meta
		until.Succeeds(t, "the writer is reached", func() error { return other.Sync(t.Context()) })
		send := func(data []byte, want error) error {
			message, err := other.nodes.conn.Request(writeSubject+"."+strconv.FormatUint(term, 10), data, patience)
			if err != nil {
				return err
			}
			if a, err := decodeAnswer(message.Data); err != nil || !errors.Is(a.err, want) {
				return fmt.Errorf("answer %+v, want %v: %v", a, want, err)
			}
			return nil
		}
		put := writeRequest{operation: operation{stored: stored{Key: fmt.Sprint("refused", term), Value: []byte{}}}}
		late, lateErr := put.encode()
		put.Within = time.Minute
		inTime, inTimeErr := put.encode()
		err := errors.Join(lateErr, inTimeErr, send([]byte("nonsense"), errFailed), send(late, errNotWriter))
		if err != nil {
			return err
		}
		if err := m.free.Acquire(t.Context(), waitingBytes); err != nil {
			return err
		}
		err = send(inTime, errNotWriter)
		m.free.Release(waitingBytes)
		if _, found := m.Get(t.Context(), put.Key); err != nil || !errors.Is(found, topic.ErrNotFound) {
			return errors.Join(err, fmt.Errorf("what was refused is there: %v", found))
		}
		return errors.Join(send(inTime, nil), send(inTime, topic.ErrConflict))
	})
}

func wantUncertain(t *testing.T, err error) {
	t.Helper()
	if !errors.Is(err, topic.ErrUncertain) {
		t.Fatalf("error is %v, want ErrUncertain", err)
	}
}

// missAnnouncements drops announcements. The next one shows the node what it missed.
func (ns *nodes) missAnnouncements(t *testing.T) {
	writer := ns.waitWriter(t, 0)
	m, other := ns.node(writer).meta, ns.node(writer%3+1).meta
	m.nodes.conn.Close() // it cannot announce, nor take requests
	conn, err := connect(ns.node(writer).engine, m.store.options.Logger)
	if err != nil {
		t.Fatal(err)
	}
	revision := put(t, m, "unannounced", "1", 0)
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
	until.True(t, "what was missed is found", func() bool {
		item, err := other.Get(t.Context(), "unannounced")
		return err == nil && item.Revision == revision
	})
	ns.stop(writer)
	ns.start(int(writer))
	ns.waitAlive(3)
	ns.replicated(t)
}

// missLargeEntries puts values that are too large for announcements.
func (ns *nodes) missLargeEntries(t *testing.T) {
	value := strings.Repeat("0123456789abcdef", maxValueBytes/16)
	for node := range ns.dirs {
		key := fmt.Sprint("large", node)
		revision := put(t, ns.node(int32(node+1)).meta, key, value, 0)
		for _, m := range ns.views() {
			until.Succeeds(t, "sync", func() error { return m.Sync(t.Context()) })
			item, err := m.Get(t.Context(), key)
			if err != nil || item.Revision != revision || string(item.Value) != value {
				t.Fatalf("a value of %d bytes at %d, want %d at %d: %v", len(item.Value), item.Revision, len(value), revision, err)
			}
		}
		remove(t, ns.node(int32(node+1)).meta, key, revision)
	}
}

// missCleaned cuts a node off until cleaning has removed the entry that it needs next.
func (ns *nodes) missCleaned(t *testing.T) {
	writer := ns.waitWriter(t, 0)
	away := ns.node(writer%3 + 1)
	put(t, away.meta, "stays", "1", 0)
	gone := put(t, away.meta, "goes", "1", 0)
	var told atomic.Int64
	defer away.meta.Watch("goes", func() { told.Add(1) })()
	ns.cut(writer%3+1, true)
	defer ns.cut(writer%3+1, false)
	m := ns.node(writer).meta
	remove(t, m, "goes", gone)
	before := told.Load()
	away.meta.mu.RLock()
	last := away.meta.state.last
	away.meta.mu.RUnlock()
	CleanAtOnce(ns.node(writer))
	CleanAtOnce(ns.node((writer+1)%3 + 1)) // it may be the writer next
	want := churn(t, m)
	until.Succeeds(t, "the log is cleaned", func() error {
		first, _, err := m.log.Ends(t.Context())
		if err == nil && first <= last+1 {
			err = fmt.Errorf("the log begins at %d, the node has %d", first, last)
			want["more"] = topic.Item{Key: "more", Value: []byte("x"), Revision: put(t, m, "more", "x", want["more"].Revision)}
		}
		return err
	})
	ns.cut(writer%3+1, false)
	until.True(t, "the node has all", func() bool {
		for key, item := range want {
			if got, err := away.meta.Get(t.Context(), key); err != nil || got.Revision != item.Revision {
				return false
			}
		}
		_, err := away.meta.Get(t.Context(), "goes")
		return errors.Is(err, topic.ErrNotFound)
	})
	until.True(t, "the other node signals the deletion", func() bool { return told.Load() > before })
	until.Succeeds(t, "both nodes have all", func() error { return errors.Join(m.Sync(t.Context()), away.meta.Sync(t.Context())) })
	mine, err := m.List(t.Context(), "")
	theirs, err2 := away.meta.List(t.Context(), "")
	if err := errors.Join(err, err2); err != nil || !reflect.DeepEqual(mine, theirs) {
		t.Fatalf("the nodes differ: %d items and %d: %v", len(mine), len(theirs), err)
	}
	ns.waitAlive(3)
}

// missWriter stops the writer. Other nodes continue, and after its restart the node has their
// changes.
func (ns *nodes) missWriter(t *testing.T) {
	writer := ns.waitWriter(t, 0)
	other := ns.node(writer%3 + 1).meta
	revision := put(t, other, "writer", "1", 0)
	until.True(t, "the writer leaves", func() bool { return ns.node(writer).cluster.Leave(t.Context()) == nil })
	revision = put(t, other, "writer", "2", revision)
	ns.stop(writer)
	revision = put(t, other, "writer", "3", revision)
	ns.start(int(writer))
	item, err := ns.node(writer).meta.Get(t.Context(), "writer")
	if err != nil || item.Revision != revision {
		t.Fatalf("key is %q at %d, want revision %d: %v", item.Value, item.Revision, revision, err)
	}
}

// BenchmarkMetaNodes puts through the writer and through another node.
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
