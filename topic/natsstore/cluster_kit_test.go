package natsstore

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/ports"
	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
)

const testSecret = "a secret of the tests"

// nodes is a cluster in this process, as one test uses it.
type nodes struct {
	t testing.TB
	*stores
}

// in returns the same cluster for a subtest.
func (ns *nodes) in(t testing.TB) *nodes { return &nodes{t, ns.stores} }

// stores are the nodes of a cluster, by number less 1. A wire that can be cut connects any
// two.
type stores struct {
	options Options
	dirs    []string
	listen  []string
	wires   map[[2]int]*wire // from the first to the second

	mu   sync.Mutex
	open []*Store
}

// newNodes prepares n nodes; configure, if there is one, changes their options.
func newNodes(t testing.TB, n int, configure func(*Options)) *nodes {
	t.Helper()
	ns := &nodes{t: t, stores: &stores{wires: map[[2]int]*wire{}, open: make([]*Store, n), listen: ports.Addrs(t, n)}}
	ns.options = Options{
		SyncInterval: time.Minute, DiskReserve: -1, Logger: slog.New(slog.DiscardHandler),
		Timeout: time.Minute, // on a busy machine a log may have no leader for longer than in production
		Cluster: &ClusterOptions{Name: "test", Secret: testSecret, JoinTimeout: 2 * time.Minute},
	}
	if configure != nil {
		configure(&ns.options)
	}
	base := t.TempDir()
	for i := range n {
		ns.dirs = append(ns.dirs, filepath.Join(base, fmt.Sprint("node", i+1)))
	}
	for from := range n {
		for to := range n {
			if from != to {
				ns.wires[[2]int{from, to}] = newWire(t, ns.listen[to])
			}
		}
	}
	t.Cleanup(ns.closeAll)
	return ns
}

// startNodes starts n nodes and waits until all know each other.
func startNodes(t testing.TB, n int, configure func(*Options)) *nodes {
	t.Helper()
	ns := newNodes(t, n, configure)
	var all []int
	for i := range n {
		all = append(all, i+1)
	}
	ns.start(all...)
	ns.waitAlive(n)
	return ns
}

// nodeOptions returns the options of a node. It and the others reach each other through wires only.
func (ns *nodes) nodeOptions(node int) Options {
	options, cluster := ns.options, *ns.options.Cluster
	cluster.Node, cluster.Listen, cluster.Advertise = int32(node), ns.listen[node-1], "127.0.0.1:1"
	for to := range ns.dirs {
		if to != node-1 {
			cluster.Peers = append(cluster.Peers, ns.wires[[2]int{node - 1, to}].address)
		}
	}
	options.Cluster = &cluster
	return options
}

// start opens nodes at the same time.
func (ns *nodes) start(which ...int) {
	ns.t.Helper()
	var work sync.WaitGroup
	errs := make(chan error, len(which))
	for _, node := range which {
		work.Go(func() {
			s, err := OpenCluster(ns.t.Context(), ns.dirs[node-1], ns.nodeOptions(node))
			for began := time.Now(); err != nil && time.Since(began) < until.Limit; { // Options.Timeout may be short for it
				s, err = OpenCluster(ns.t.Context(), ns.dirs[node-1], ns.nodeOptions(node))
			}
			if err != nil {
				errs <- fmt.Errorf("node %d: %w", node, err)
				return
			}
			ns.mu.Lock()
			defer ns.mu.Unlock()
			ns.stores.open[node-1] = s
		})
	}
	work.Wait()
	close(errs)
	for err := range errs {
		ns.t.Fatal(err)
	}
}

// node returns the store of a node.
func (ns *nodes) node(node int32) *Store {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	return ns.stores.open[node-1]
}

// stop closes a node.
func (ns *nodes) stop(node int32) {
	ns.t.Helper()
	ns.mu.Lock()
	s := ns.stores.open[node-1]
	ns.stores.open[node-1] = nil
	ns.mu.Unlock()
	if s == nil {
		return
	}
	if err := s.Close(); err != nil {
		ns.t.Errorf("close node %d: %v", node, err)
	}
}

func (ns *nodes) closeAll() {
	for i := range ns.stores.open {
		ns.stop(int32(i + 1))
	}
	for _, w := range ns.wires {
		w.close()
	}
}

// cut cuts a node off from all others, or connects it again.
func (ns *nodes) cut(node int32, off bool) {
	for ends, w := range ns.wires {
		if ends[0] == int(node-1) || ends[1] == int(node-1) {
			w.cut(off)
		}
	}
}

// running returns the numbers of the nodes that run.
func (ns *nodes) running() []int32 {
	ns.mu.Lock()
	defer ns.mu.Unlock()
	var all []int32
	for i, s := range ns.stores.open {
		if s != nil {
			all = append(all, int32(i+1))
		}
	}
	return all
}

// waitAlive waits until all running nodes see n nodes, and know as many members.
func (ns *nodes) waitAlive(n int) {
	ns.t.Helper()
	until.True(ns.t, fmt.Sprintf("%d nodes alive", n), func() bool {
		for _, node := range ns.running() {
			s := ns.node(node)
			known, _ := s.engine.members()
			if len(s.Cluster().Alive()) != n || len(known) < n {
				return false
			}
		}
		return true
	})
}

// waitAliveOnly waits until all running nodes see n nodes.
func (ns *nodes) waitAliveOnly(n int) {
	ns.t.Helper()
	until.True(ns.t, fmt.Sprintf("only %d nodes alive", n), func() bool {
		for _, node := range ns.running() {
			if len(ns.node(node).Cluster().Alive()) != n {
				return false
			}
		}
		return true
	})
}

// leader waits for a leader of a log, one of some nodes if given, and returns it.
func (ns *nodes) leader(log string, among ...int32) int32 {
	ns.t.Helper()
	var leader int32
	until.True(ns.t, "a leader of "+log, func() bool {
		for _, node := range ns.running() {
			if ns.node(node).Cluster().Leads(log) && (len(among) == 0 || slices.Contains(among, node)) {
				leader = node
				return true
			}
		}
		return false
	})
	return leader
}

// log opens a log through a node.
func (ns *nodes) log(node int32, name string, on ...int32) *log {
	ns.t.Helper()
	var l topic.Log
	until.Succeeds(ns.t, "open log "+name, func() (err error) {
		l, err = openReached(ns.t, ns.node(node), name, on)
		return err
	})
	return l.(*log)
}

// openReached opens a log through a store. If the store did not have it open, openReached waits
// until appends reach the log's leader: the other nodes learn a moment after an election where
// appends go, and until then an append is uncertain.
func openReached(t testing.TB, s *Store, name string, on []int32) (topic.Log, error) {
	t.Helper()
	s.mu.RLock()
	_, open := s.logs[name]
	s.mu.RUnlock()
	l, err := s.OpenLog(t.Context(), name, on)
	if err == nil && !open {
		until.True(t, "appends reach the leader of "+name, func() bool {
			err := <-send(l.(*log), 1<<40) // it never follows
			return errors.Is(err, topic.ErrFenced) || errors.Is(err, topic.ErrNoLog) || errors.Is(err, topic.ErrClosed)
		})
	}
	return l, err
}

// wire forwards connections to an address.
type wire struct {
	address string
	listen  net.Listener
	to      string
	work    sync.WaitGroup

	mu    sync.Mutex
	off   bool
	conns map[net.Conn]bool
	tap   *tap // gets what is sent, in either direction, if it is set
}

// tap remembers what it gets.
type tap struct {
	mu   sync.Mutex
	data []byte
}

func (t *tap) Write(data []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.data = append(t.data, data...)
	return len(data), nil
}

func (t *tap) saw(text string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	return bytes.Contains(t.data, []byte(text))
}

func newWire(t testing.TB, to string) *wire {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{address: l.Addr().String(), listen: l, to: to, conns: map[net.Conn]bool{}}
	w.work.Go(w.accept)
	return w
}

func (w *wire) accept() {
	for {
		from, err := w.listen.Accept()
		if err != nil {
			return
		}
		w.work.Go(func() { w.carry(from) })
	}
}

func (w *wire) carry(from net.Conn) {
	defer from.Close()
	to, err := net.Dial("tcp", w.to)
	if err != nil {
		return
	}
	defer to.Close()
	w.mu.Lock()
	if w.off {
		w.mu.Unlock()
		return
	}
	w.conns[from], w.conns[to] = true, true
	var also io.Writer = io.Discard
	if w.tap != nil {
		also = w.tap
	}
	w.mu.Unlock()
	var both sync.WaitGroup
	for _, ends := range [][2]net.Conn{{from, to}, {to, from}} {
		both.Go(func() {
			_, _ = io.Copy(ends[0], io.TeeReader(ends[1], also))
			ends[0].Close()
			ends[1].Close()
		})
	}
	both.Wait()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.conns, from)
	delete(w.conns, to)
}

// cut closes all connections and refuses new ones, until it is called with false.
func (w *wire) cut(off bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.off = off
	for conn := range w.conns {
		if off {
			conn.Close()
		}
	}
}

// copyTo makes new connections copy what they carry to a tap.
func (w *wire) copyTo(t *tap) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.tap = t
}

func (w *wire) close() {
	w.listen.Close()
	w.cut(true)
	w.work.Wait()
}

// numbered returns the entry with a sequence, which its data has too.
func numbered(sequence uint64) topic.Entry {
	return topic.Entry{
		Sequence: sequence, Mark: topic.Mark{Base: int64(sequence), Next: int64(sequence) + 1},
		Data: []byte(fmt.Sprint("entry ", sequence)),
	}
}
