package kafka

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"math"
	"net"
	"reflect"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/storetest"
)

// The memory that a request may take for each of its bytes, in all, and in any case.
const (
	costOfByte = 64
	costAtMost = 256 << 20
	costFree   = 1 << 20
	// costOfChange is what each change of topics may cost that a request makes one after the other: it
	// reads the newest metadata, which here has few topics.
	costOfChange = 4 << 10
)

// changes are the requests that make changes one after the other.
var changes = []string{"AlterConfigs", "IncrementalAlterConfigs", "CreateTopics", "CreatePartitions", "DeleteTopics", "AlterPartitionAssignments", "ElectLeaders", "DeleteRecords"}

// raceFactor is 2 with the race detector, and 1 otherwise: append(to, make([]T, n)...), which the decoder
// uses for each array, then makes the slice twice, and a sync.Pool loses a quarter of what it keeps.
var raceFactor = func() uint64 {
	info, _ := debug.ReadBuildInfo()
	if slices.Contains(info.Settings, debug.BuildSetting{Key: "-race", Value: "true"}) {
		return 2
	}
	return 1
}()

// costs returns an error if a request of that size takes more memory than it may.
func costs(size int, took uint64) error {
	if most := min(max(costOfByte*uint64(size), costFree), costAtMost); took > raceFactor*most {
		return fmt.Errorf("%d bytes took %d of memory, %d for each; want at most %d", size, took, took/uint64(size), most)
	}
	return nil
}

// meter measures the memory that a server takes for requests.
type meter struct {
	t    testing.TB
	s    *Server
	conn net.Conn
}

// newMeter returns a meter of a server that has no other clients.
func newMeter(t testing.TB, s *Server) *meter {
	here, there := net.Pipe()
	c := newConnection(t.Context(), s, here, s.options.listeners()[0])
	var both sync.WaitGroup
	both.Go(func() { _ = c.read(c.ctx) })
	both.Go(func() { _ = c.send(c.ctx) })
	t.Cleanup(func() { _ = there.Close(); both.Wait() })
	return &meter{t, s, there}
}

// measure sends a request. It returns the memory that was allocated until the answer was complete,
// and the size of the answer.
func (m *meter) measure(frame []byte) (took uint64, size int) {
	m.t.Helper()
	_ = m.conn.SetDeadline(time.Now().Add(patience))
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := m.conn.Write(frame); err != nil {
		m.t.Fatal(err)
	}
	var length [sizeBytes]byte
	if _, err := io.ReadFull(m.conn, length[:]); err != nil {
		m.t.Fatal(err)
	}
	size = int(binary.BigEndian.Uint32(length[:]))
	if _, err := io.CopyN(io.Discard, m.conn, int64(size)); err != nil {
		m.t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc, size
}

// aCostlyBroker returns a broker with some of everything that a request can name.
func aCostlyBroker(t *testing.T) *broker.Broker {
	b := startBroker(t, storetest.NewMemory(), topic.Config{AutoCreateOff: true})
	for _, name := range theTopics {
		create(t, b, name, 10)
	}
	for _, name := range theGroups {
		aGroup(t, b, name, 100)
	}
	return b
}

var (
	theTopics = []string{"orders", "payments", "returns"}
	theGroups = []string{"shipping", "billing"}
)

// aGroup adds a stable group of one member that brings metadata of a size.
func aGroup(t *testing.T, b *broker.Broker, name string, size int) {
	t.Helper()
	joining := b.Groups().Join(group.JoinRequest{
		Group: name, Client: "c", Host: "/h", Session: time.Minute, Rebalance: time.Minute, ProtocolType: "consumer",
		Protocols: []group.Protocol{{Name: "range", Metadata: make([]byte, size)}},
	})
	joined, err := joining.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	identity := group.MemberIdentity{Group: name, Member: joined.Member, Generation: joined.Generation}
	syncing := b.Groups().Sync(group.SyncRequest{MemberIdentity: identity, Assignments: map[string][]byte{joined.Member: {1}}})
	if _, err := syncing.Wait(t.Context()); err != nil {
		t.Fatal(err)
	}
}

// No request takes much more memory than it has bytes, whatever it names, as often as it can:
// unknown things, or the same known ones. For each kind, each of its arrays is as long as the
// request may be.
func TestWhatARequestCosts(t *testing.T) {
	b := aCostlyBroker(t)
	for _, kind := range requests {
		t.Run(requestName(kind.key), func(t *testing.T) {
			s := NewServer(b, Options{})
			m := newMeter(t, s)
			many, free := 5000, uint64(0)
			if slices.Contains(changes, requestName(kind.key)) {
				many, free = 300, 300*costOfChange
			}
			for _, version := range slices.Compact([]int16{kind.min, (kind.min + kind.max) / 2, kind.max}) {
				for _, names := range allNames {
					for path, r := range worst(kind.key, version, many, names) {
						frame := kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)
						name := fmt.Sprintf("version %d, many %s, %s names", version, path, names)
						took, size := m.measure(frame)
						for tries := 1; tries < 20 && costs(len(frame), max(took, free)-free) != nil; tries++ {
							again, _ := m.measure(frame) // something else may have allocated at the same time
							took = min(took, again)
						}
						t.Logf("%s: %d bytes, memory %d (%d for each), answer %d", name, len(frame), took, int(took)/len(frame), size)
						if err := costs(len(frame), max(took, free)-free); err != nil {
							t.Errorf("%s: %v", name, err)
						}
					}
				}
			}
			until.True(t, "the memory is back", func() bool {
				return s.requests.Used()+s.large.Used()+s.turns.Used()+s.answers.Used() == 0
			})
		})
	}
}

// worst returns requests of a kind that have many elements in one of their arrays each, by the name
// of the array.
func worst(key, version int16, many int, names string) map[string]kmsg.Request {
	all := map[string]kmsg.Request{}
	for _, path := range arrays(reflect.TypeOf(kmsg.RequestForKey(key)).Elem(), "") {
		r := kmsg.RequestForKey(key)
		w := worstCase{path: path, many: many, names: names}
		w.fill(reflect.ValueOf(r).Elem(), "", "")
		r.SetVersion(version)
		harmless(r)
		all[path] = r
	}
	return all
}

// harmless changes what would make, or wait for, many things.
func harmless(r kmsg.Request) {
	switch r := r.(type) {
	case *kmsg.CreateTopicsRequest:
		r.ValidateOnly = true
		if r.Version < 1 {
			r.Topics[0].NumPartitions = 0
		}
	case *kmsg.CreatePartitionsRequest:
		r.ValidateOnly = true
	case *kmsg.FetchRequest:
		r.MaxWaitMillis, r.MinBytes, r.SessionEpoch = 0, 0, -1
		for i := range r.Topics {
			for j := range r.Topics[i].Partitions { // without tags, which only other brokers send
				r.Topics[i].Partitions[j].HighWatermark = math.MaxInt64
			}
		}
	case *kmsg.ProduceRequest:
		r.Acks, r.TransactionID = 1, nil
	case *kmsg.DeleteTopicsRequest:
		r.TopicNames = r.TopicNames[:0:0]
	case *kmsg.LeaveGroupRequest:
		r.MemberID = "nobody"
	}
}

// arrays returns the paths of all arrays in a type.
func arrays(of reflect.Type, at string) (paths []string) {
	for i := range of.NumField() {
		field := of.Field(i)
		path := strings.TrimPrefix(at+"."+field.Name, ".")
		kind := field.Type
		if kind.Kind() == reflect.Pointer {
			kind = kind.Elem()
		}
		switch {
		case kind.Kind() == reflect.Slice && kind.Elem().Kind() != reflect.Uint8:
			paths = append(paths, path)
			if kind.Elem().Kind() == reflect.Struct {
				paths = append(paths, arrays(kind.Elem(), path)...)
			}
		case kind.Kind() == reflect.Struct && kind != reflect.TypeFor[kmsg.Tags]():
			paths = append(paths, arrays(kind, path)...)
		}
	}
	return paths
}

// The names in a request: short ones that are new, some that exist, none at all (and nothing else in
// the elements of the long array, so that they are as small as can be), or long ones around that array.
const (
	newNames   = "new"
	knownNames = "known"
	noNames    = "no"
	longNames  = "long"
)

var allNames = []string{newNames, knownNames, noNames, longNames}

// worstCase fills a request.
type worstCase struct {
	path  string // of the long array
	many  int
	names string
	next  int
}

func (w *worstCase) fill(value reflect.Value, at, name string) {
	switch value.Kind() {
	case reflect.Struct:
		if value.Type() == reflect.TypeFor[kmsg.Tags]() {
			return
		}
		for i := range value.NumField() {
			field := value.Type().Field(i)
			w.fill(value.Field(i), strings.TrimPrefix(at+"."+field.Name, "."), field.Name)
		}
	case reflect.Slice:
		if value.Type().Elem().Kind() == reflect.Uint8 {
			return
		}
		length := 1
		switch {
		case at == w.path:
			length = w.many
		case w.names == noNames && !strings.HasPrefix(w.path, at):
			return
		}
		value.Set(reflect.MakeSlice(value.Type(), length, length))
		for i := range length {
			w.fill(value.Index(i), at, name)
		}
	case reflect.Pointer:
		if w.names == noNames {
			return
		}
		value.Set(reflect.New(value.Type().Elem()))
		w.fill(value.Elem(), at, name)
	case reflect.String:
		w.next++
		value.SetString(w.text(at + "." + name))
	case reflect.Int32:
		w.next++
		switch {
		case strings.Contains(name, "Partition") && w.names == knownNames:
			value.SetInt(int64(w.next % 10))
		case strings.Contains(name, "Partition"):
			value.SetInt(int64(w.next))
		case strings.Contains(name, "Epoch") || strings.Contains(name, "Generation"):
			value.SetInt(-1)
		}
	case reflect.Int64:
		value.SetInt(-1)
	case reflect.Int8:
		value.SetInt(2) // settings of topics
	case reflect.Bool:
		value.SetBool(true)
	}
}

// text returns a name.
func (w *worstCase) text(at string) string {
	switch {
	case w.names == noNames:
		return ""
	case w.names == longNames && !strings.HasPrefix(at, w.path):
		return strings.Repeat("x", 10_000)
	case w.names != knownNames:
		return strconv.FormatInt(int64(w.next), 36)
	case strings.Contains(at, "Group") || strings.Contains(at, "CoordinatorKey"):
		return theGroups[w.next%len(theGroups)]
	default:
		return theTopics[w.next%len(theTopics)]
	}
}

// discard is a connection that takes all answers.
type discard struct{ net.Conn }

func (discard) Write(p []byte) (int, error)      { return len(p), nil }
func (discard) SetWriteDeadline(time.Time) error { return nil }
func (discard) Close() error                     { return nil }
func (discard) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (discard) LocalAddr() net.Addr              { return &net.TCPAddr{IP: net.IPv4(127, 0, 0, 1), Port: 9092} }

// FuzzHandlers has a server handle arbitrary requests, one after the other: none panics, none takes
// more memory than a request of its size may, and all of it is given back.
func FuzzHandlers(f *testing.F) {
	for _, kind := range requests {
		for _, version := range []int16{kind.min, kind.max} {
			for _, names := range allNames {
				for _, r := range worst(kind.key, version, 3, names) {
					f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)[sizeBytes:])
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte) {
		if len(frame) < minRequestBytes || len(frame) > 1<<20 {
			return
		}
		b := startBroker(t, storetest.NewMemory(), topic.Config{TotalPartitions: 20, AutoCreatePerMinute: 30, Groups: topic.GroupsConfig{GroupsMax: 5}})
		create(t, b, theTopics[0], 2)
		s := NewServer(b, Options{Logger: slog.New(slog.NewTextHandler(panics{t}, nil))})
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // a fetch may wait longer
		defer cancel()
		c := newConnection(ctx, s, discard{}, s.options.listeners()[0])
		x := &exchange{}
		if err := c.reserve(x, int64(len(frame))); err != nil {
			t.Fatal(err)
		}
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		if err := c.start(x, frame); err == nil {
			c.slots <- struct{}{}
			_ = c.sendOne(x)
		}
		runtime.ReadMemStats(&after)
		took := after.TotalAlloc - before.TotalAlloc
		if x.key == keyProduce { // it may be decompressed, within the bound of the broker
			took = max(took, 2*topic.LeastUnpackBytes) - 2*topic.LeastUnpackBytes
		}
		if err := costs(len(frame), took); err != nil {
			t.Errorf("%s version %d: %v", requestName(x.key), x.version, err)
		}
		c.cancel()
		c.end()
		c.end()
		if held := s.requests.Used() + s.large.Used() + s.answers.Used() + s.turns.Used() + s.converted.Used(); held != 0 {
			t.Errorf("%s version %d: %d bytes are held after it", requestName(x.key), x.version, held)
		}
	})
}

// panics fails a test when a server logs that a request has panicked.
type panics struct{ t *testing.T }

func (p panics) Write(line []byte) (int, error) {
	if strings.Contains(string(line), "panic") {
		p.t.Errorf("%s", line)
	}
	return len(line), nil
}
