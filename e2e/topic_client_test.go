package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// connect returns a client that retries its broker often while that is away, and does not mistake a
// dying broker for one that requires SASL. It is closed when the test ends.
func (s *server) connect(options ...kgo.Opt) *kgo.Client {
	s.t.Helper()
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(s.seeds()...), kgo.AlwaysRetryEOF(), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.FetchMaxWait(100 * time.Millisecond),
		kgo.RetryBackoffFn(func(int) time.Duration { return 30 * time.Millisecond }), kgo.MetadataMinAge(20 * time.Millisecond),
	}, options...)...)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(client.CloseAllowingRebalance)
	return client
}

// newTopic creates a topic; settings are names and values. A view has -1 partitions: those of its
// source.
func (s *server) newTopic(name string, partitions int, settings ...string) {
	s.t.Helper()
	configs := map[string]*string{}
	for i := 0; i < len(settings); i += 2 {
		configs[settings[i]] = &settings[i+1]
	}
	admin := kadm.NewClient(s.connect())
	if _, err := admin.CreateTopic(s.t.Context(), int32(partitions), s.replicas(), configs, name); err != nil {
		s.t.Fatalf("create topic %s: %v", name, err)
	}
}

// topicEnds returns the end of each partition of a topic.
func (s *server) topicEnds(name string) map[int32]int64 {
	s.t.Helper()
	admin := kadm.NewClient(s.connect())
	var listed kadm.ListedOffsets
	until.Succeeds(s.t, "the ends of "+name+" are listed", func() (err error) { // during an election no leader answers
		listed, err = admin.ListEndOffsets(s.t.Context(), name)
		if err = errors.Join(err, listed.Error()); err != nil && !awayOrLoading(err) {
			s.t.Fatalf("list the ends of %s: %v", name, err)
		}
		return err
	})
	ends := map[int32]int64{}
	listed.Each(func(o kadm.ListedOffset) { ends[o.Partition] = o.Offset })
	return ends
}

// readTopic calls each with all records of a topic, in the order of each partition, with a client
// of its own. It fails unless offsets begin at 0 and are dense.
func (s *server) readTopic(name string, most time.Duration, each func(*kgo.Record)) {
	s.t.Helper()
	ends := s.topicEnds(name)
	next, from := map[int32]int64{}, map[int32]kgo.Offset{}
	for partition, end := range ends {
		if end > 0 {
			next[partition], from[partition] = 0, kgo.NewOffset().At(0)
		}
	}
	if len(next) == 0 {
		return
	}
	client := s.connect(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{name: from}), kgo.ConsumeResetOffset(kgo.NoResetOffset()))
	defer client.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), most)
	defer cancel()
	for len(next) > 0 {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil && (ctx.Err() != nil || !awayOrLoading(err)) {
			s.t.Fatalf("read %s, at %v of %v: %v", name, next, ends, err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			want, reading := next[r.Partition]
			if !reading {
				return // appended later
			}
			if r.Offset != want {
				s.t.Fatalf("%s/%d: offset %d comes after %d", name, r.Partition, r.Offset, want-1)
			}
			each(r)
			next[r.Partition]++
			if next[r.Partition] == ends[r.Partition] {
				delete(next, r.Partition)
			}
		})
	}
}

// metric returns the value of one of the server's Prometheus metrics.
func (s *server) metric(name string) (float64, error) {
	a, err := s.do(http.MethodGet, "/metrics", "", nil)
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(a.body)) {
		if value, found := strings.CutPrefix(line, name+" "); found {
			return strconv.ParseFloat(strings.TrimSpace(value), 64)
		}
	}
	return 0, fmt.Errorf("no metric %s", name)
}

// memory returns the server's anonymous memory in bytes, without files that the kernel caches.
func (s *server) memory() int64 {
	s.t.Helper()
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", s.cmd.Process.Pid))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range strings.Lines(string(status)) {
		if rest, found := strings.CutPrefix(line, "RssAnon:"); found {
			kib, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(rest), " kB"), 10, 64)
			if err != nil {
				s.t.Fatal(err)
			}
			return kib << 10
		}
	}
	s.t.Fatalf("no RssAnon in %s", status)
	return 0
}

// wire is the network of one client: it counts received bytes, and can be cut, or held as if the
// process were stopped.
type wire struct {
	received atomic.Int64

	mu    sync.Mutex
	conns map[net.Conn]bool
	cut   bool
	held  chan struct{} // closed on release; nil if not held
}

// dial is used as kgo.Dialer.
func (w *wire) dial(ctx context.Context, network, host string) (net.Conn, error) {
	w.pass()
	conn, err := (&net.Dialer{}).DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.cut {
		conn.Close()
		return nil, net.ErrClosed
	}
	if w.conns == nil {
		w.conns = map[net.Conn]bool{}
	}
	w.conns[conn] = true
	return &wiredConn{Conn: conn, wire: w}, nil
}

// kill closes all connections; nothing more is sent.
func (w *wire) kill() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut = true
	for _, conn := range slices.Collect(maps.Keys(w.conns)) {
		conn.Close()
	}
}

// hold blocks all traffic until the returned function is called.
func (w *wire) hold() (release func()) {
	w.mu.Lock()
	defer w.mu.Unlock()
	held := make(chan struct{})
	w.held = held
	return sync.OnceFunc(func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.held = nil
		close(held)
	})
}

// pass waits while the wire is held.
func (w *wire) pass() {
	w.mu.Lock()
	held := w.held
	w.mu.Unlock()
	if held != nil {
		<-held
	}
}

type wiredConn struct {
	net.Conn
	wire *wire
}

func (c *wiredConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.wire.received.Add(int64(n))
	c.wire.pass()
	return n, err
}

func (c *wiredConn) Write(b []byte) (int, error) {
	c.wire.pass()
	return c.Conn.Write(b)
}

func (c *wiredConn) Close() error {
	c.wire.mu.Lock()
	delete(c.wire.conns, c.Conn)
	c.wire.mu.Unlock()
	return c.Conn.Close()
}

// numbers returns lines "from" to "to-1".
func numbers(from, to int) (lines []string) {
	for i := from; i < to; i++ {
		lines = append(lines, fmt.Sprint(i))
	}
	return lines
}

func input(lines []string) string { return strings.Join(lines, "\n") + "\n" }
