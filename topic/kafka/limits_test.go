package kafka

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// log collects a server's log.
type log struct {
	mu   sync.Mutex
	text bytes.Buffer
}

func (l *log) Write(line []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(line)
}

func (l *log) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(l, &slog.HandlerOptions{Level: slog.LevelDebug}))
}

// await fails unless the log soon contains the text.
func (l *log) await(t *testing.T, want string) {
	t.Helper()
	until.True(t, fmt.Sprintf("the log says %q", want), func() bool { return l.has(want) })
}

func (l *log) has(text string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Contains(l.text.String(), text)
}

// frameOf puts a size before a body.
func frameOf(body ...byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// A connection that sends a malformed request is closed, and the log says why; the others continue.
func TestMalformedRequestsCloseTheirConnection(t *testing.T) {
	cases := map[string]struct {
		data []byte
		log  string
	}{
		"negative size":   {[]byte{0xff, 0xff, 0xff, 0xff}, "size -1"},
		"too small":       {frameOf(0, 18, 0, 0), "size 4, want at least 8"},
		"too large":       {[]byte{0x7f, 0xff, 0xff, 0xff}, "size 2147483647, want at most"},
		"http":            {[]byte("GET / HTTP/1.1\r\n\r\n"), "want at most"},
		"unknown kind":    {frameOf(0x7f, 0, 0, 0, 0, 0, 0, 1), "key=32512 version=0 served=none"},
		"unknown version": {frameOf(0, 3, 0, 99, 0, 0, 0, 1), "request=Metadata key=3 version=99 served=\"0 to 12\""},
		"header cut off":  {frameOf(0, 3, 0, 1, 0, 0, 0, 1, 0, 9), "header of Metadata"},
		"body cut off":    {frameOf(0, 3, 0, 1, 0, 0, 0, 1, 0xff, 0xff, 0, 0, 0, 9), "Metadata version 1"},
		"billions of tags": {frameOf(0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 0, 2, 'x', 2, '1', 0xff, 0xff, 0xff, 0xff, 0x0f),
			"ApiVersions version 3"},
	}
	for name, c := range cases {
		t.Run(name, func(t *testing.T) {
			var lines log
			s := start(t, nil, Options{Logger: lines.logger()})
			other := dial(t, s)
			p := dial(t, s)
			p.write(c.data)
			p.closed()
			lines.await(t, c.log)
			ask[*kmsg.ApiVersionsResponse](other, 2, apiVersionsRequest())
		})
	}
}

func apiVersionsRequest() *kmsg.ApiVersionsRequest {
	r := kmsg.NewPtrApiVersionsRequest()
	r.ClientSoftwareName, r.ClientSoftwareVersion = "test", "1.0"
	return r
}

// Clients that come back with the same unsupported request do not fill the log: there is a line for
// each kind of request in a minute, and the next one counts the others.
func TestUnsupportedRequestsAreLoggedOnceAMinute(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w warnings
		for range 3 {
			logged := 0
			for range 100 {
				for key := range int16(200) { // some of them are in the protocol
					if _, due := w.due(key + 50); due {
						logged++
					}
				}
			}
			if most := len(w.byKind); logged != most || most > 100 {
				t.Errorf("%d lines in the log, want one for each of %d kinds", logged, most)
			}
			time.Sleep(warnEvery)
		}
		if missed, due := w.due(50); missed != 99 || !due {
			t.Errorf("a line that counts %d others, want 99", missed)
		}
	})
}

// Many clients that announce 100 MiB and send nothing cost little memory, and leave space for small
// requests.
func TestAnnouncedSizesCostNothing(t *testing.T) {
	s := start(t, nil, Options{})
	before := heap()
	for range 50 {
		p := dial(t, s)
		p.write(binary.BigEndian.AppendUint32(nil, 100<<20))
		p.write([]byte{0, 0, 0, 9})
	}
	until.True(t, "some are being read", func() bool { return s.requests.Used() >= 100<<20 })
	grewAtMost(t, before, 20<<20)
	ask[*kmsg.ApiVersionsResponse](dial(t, s), 2, apiVersionsRequest())
}

// grewAtMost waits until the heap has grown by at most the given bytes: garbage of earlier tests
// and background work may remain for a while.
func grewAtMost(t *testing.T, before, most int64) {
	t.Helper()
	until.Succeeds(t, "memory in use", func() error {
		if grown := heap() - before; grown > most {
			return fmt.Errorf("%d bytes more are in use, want at most %d", grown, most)
		}
		return nil
	})
}

func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc + stats.StackInuse)
}

// Idle connections cost at most 20 kB each, and others are served at the same time. Both ends of a
// connection are in this process, which may have a limit of 4,096 descriptors.
func TestIdleConnectionsAreCheap(t *testing.T) {
	const count = 1500
	s := start(t, nil, Options{})
	before := heap()
	connections := make([]net.Conn, count)
	for i := range connections {
		conn, err := net.Dial("tcp", s.Addr())
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close()
		connections[i] = conn
	}
	until.True(t, "all are accepted", func() bool { return s.connected() == count })
	grewAtMost(t, before, count*20_000)
	ask[*kmsg.ApiVersionsResponse](dial(t, s), 2, apiVersionsRequest())
}

func TestSilentConnectionsEnd(t *testing.T) {
	var lines log
	dial(t, start(t, nil, Options{IdleTimeout: 50 * time.Millisecond, Logger: lines.logger()})).closed()
	lines.await(t, "idle for 50ms")
	s := start(t, nil, Options{ReadTimeout: 60 * time.Millisecond, Logger: lines.logger()})
	half := dial(t, s)
	half.write([]byte{0, 0, 0, 100, 0, 18})
	half.closed()
	lines.await(t, "the rest did not come within 60ms")
	until.True(t, "their memory is back", func() bool { return s.requests.Used() == 0 })
}

// A connection that waits for an answer is not idle, however long that takes.
func TestWaitingConnectionsAreNotIdle(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	s := start(t, b, Options{IdleTimeout: 20 * time.Millisecond})
	create(t, b, "orders", 1)
	r := fetchRequest("orders", 0, 0)
	r.MaxWaitMillis = 400
	frame := kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)
	until.Succeeds(t, "a fetch that waits is answered", func() error {
		p := dial(t, s)
		began := time.Now()
		_, err := p.conn.Write(frame)
		size := make([]byte, sizeBytes)
		if err == nil {
			_, err = io.ReadFull(p.conn, size)
		}
		if err != nil {
			return err // it was idle before the request came: the machine is busy
		}
		if took := time.Since(began); took < 400*time.Millisecond {
			t.Errorf("a fetch that waits 400ms took %v", took)
		}
		if _, err := io.CopyN(io.Discard, p.conn, int64(binary.BigEndian.Uint32(size))); err != nil {
			t.Fatal(err)
		}
		p.closed()
		return nil
	})
}

// With MaxInFlight unanswered requests of a client, the server reads no further ones.
func TestRequestsInFlightAreBounded(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	s := start(t, b, Options{MaxInFlight: 3})
	create(t, b, "orders", 1)
	store.Hold()
	defer store.Release()
	p := dial(t, s)
	r := produceRequest("orders", 0, batchOf([]byte("x")))
	var last int32
	for range 20 {
		last = p.send(r)
	}
	produced := s.metrics.byKind[keyProduce]
	until.True(t, "three are started", func() bool { return testutil.ToFloat64(produced) == 3 })
	other := dial(t, s)
	for range 50 { // time for a fourth to start
		ask[*kmsg.ApiVersionsResponse](other, 3, apiVersionsRequest())
	}
	if got := testutil.ToFloat64(produced); got != 3 {
		t.Errorf("%v requests were started, want 3", got)
	}
	store.Release()
	for i := range last {
		answered := p.receive(r, i+1).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
		wantCode(t, "produce", answered.ErrorCode, nil)
		if answered.BaseOffset != int64(i) {
			t.Fatalf("request %d got offset %d", i, answered.BaseOffset)
		}
	}
}

// A consumer that requests much and reads nothing takes bounded memory for a bounded time, and
// others get their records.
func TestSlowConsumersHarmNobodyElse(t *testing.T) {
	t.Parallel()
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	const memory = 16 << 20
	// A busy machine may not let the good one read for seconds.
	s := start(t, b, Options{FetchMemory: memory, WriteTimeout: 10 * time.Second})
	to := create(t, b, "orders", 1)
	for range 40 {
		appendTo(t, to, batchOf(make([]byte, 1<<20-1000)))
	}
	greedy := fetchRequest("orders", 0, 0)
	greedy.MaxBytes, greedy.Topics[0].Partitions[0].PartitionMaxBytes = 64<<20, 64<<20
	askUnread(t, s, 8, 10, greedy)
	until.True(t, "they hold memory", func() bool { return s.answers.Used() > 0 })
	good := dial(t, s)
	for offset := range int64(40) {
		until.True(t, fmt.Sprintf("the record at %d comes", offset), func() bool {
			r := fetchRequest("orders", 0, offset)
			r.MaxWaitMillis = 5000
			return len(ask[*kmsg.FetchResponse](good, 12, r).Topics[0].Partitions[0].RecordBatches) > 0
		})
		if used := s.answers.Used(); used > memory+10<<20 { // each connection may exceed it by one batch
			t.Fatalf("answers hold %d bytes, want about %d", used, memory)
		}
	}
	until.True(t, "the slow ones are closed", func() bool { return s.connected() == 1 })
	until.True(t, "their memory is back", func() bool { return s.answers.Used() == 0 })
}

// askUnread sends a request so many times over each of some connections, and reads no answer. The
// server may end a connection before all are sent.
func askUnread(t *testing.T, s *Server, connections, times int, r kmsg.Request) {
	t.Helper()
	for range connections {
		p := dial(t, s)
		_ = p.conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		frame := kmsg.NewRequestFormatter().AppendRequest(nil, r, 1)
		_, _ = p.conn.Write(bytes.Repeat(frame, times))
	}
}

func appendTo(t testing.TB, to *broker.Topic, batch topic.Batch) {
	t.Helper()
	appending, err := to.Append(t.Context(), 0, []topic.Batch{batch})
	if err == nil {
		_, _, err = appending.Wait(t.Context())
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A panic in a request ends only its connection.
func TestPanicsEndOneConnection(t *testing.T) {
	var lines log
	s := start(t, nil, Options{Logger: lines.logger()}) // without a broker
	other, p := dial(t, s), dial(t, s)
	p.send(kmsg.NewPtrMetadataRequest())
	p.closed()
	lines.await(t, "kafka request panics")
	ask[*kmsg.ApiVersionsResponse](other, 2, apiVersionsRequest())
}

// Stop answers open requests, and does not wait for answers that may never come.
func TestStopAnswersWhatWasAsked(t *testing.T) {
	store := storetest.NewMemory()
	b := startBroker(t, store, topic.Config{})
	create(t, b, "orders", 1)
	s := NewServer(b, Options{Addr: "127.0.0.1:0"})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	producer, consumer, idle := dial(t, s), dial(t, s), dial(t, s)
	ask[*kmsg.ApiVersionsResponse](idle, 3, apiVersionsRequest())
	store.Hold()
	r := produceRequest("orders", 0, batchOf([]byte("x")))
	sent := producer.send(r)
	waiting := fetchRequest("orders", 0, 0)
	waiting.MaxWaitMillis = 60_000
	fetched := consumer.send(waiting)
	until.True(t, "both are under way", func() bool {
		return testutil.ToFloat64(s.metrics.byKind[keyProduce])+testutil.ToFloat64(s.metrics.byKind[keyFetch]) == 2
	})
	stopped := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		stopped <- s.Stop(ctx)
	}()
	consumer.receive(waiting, fetched)
	if _, err := net.Dial("tcp", s.Addr()); err == nil {
		t.Error("the server lets clients in while it stops")
	}
	store.Release()
	answered := producer.receive(r, sent).(*kmsg.ProduceResponse)
	wantCode(t, "produce", answered.Topics[0].Partitions[0].ErrorCode, nil)
	if err := <-stopped; err != nil {
		t.Fatal(err)
	}
	idle.closed()
	if used := s.requests.Used(); used != 0 { // all goroutines have ended
		t.Errorf("the stopped server holds %d bytes for requests", used)
	}
}

// A client that was served gets an orderly end of the connection. Another gets a reset: after an
// orderly end it would assume an error of TLS or SASL, and not retry.
func TestStopResetsClientsThatWereNotServed(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	s := NewServer(b, Options{Addr: "127.0.0.1:0"})
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	served, knocked, silent := dial(t, s), dial(t, s), dial(t, s)
	ask[*kmsg.ApiVersionsResponse](served, 3, apiVersionsRequest())
	ask[*kmsg.MetadataResponse](served, 12, kmsg.NewPtrMetadataRequest())
	ask[*kmsg.ApiVersionsResponse](knocked, 3, apiVersionsRequest())
	until.True(t, "all are connected", func() bool { return s.connected() == 3 })
	stop(t, s.Stop)
	for _, told := range []struct {
		who  *peer
		want error
	}{{served, io.EOF}, {knocked, syscall.ECONNRESET}, {silent, syscall.ECONNRESET}} {
		if _, err := told.who.conn.Read(make([]byte, 1)); !errors.Is(err, told.want) {
			t.Errorf("a client is told %v, want %v", err, told.want)
		}
	}
}

// FuzzFrame sends arbitrary bytes to a connection: it must end, without a panic, and release its
// memory.
func FuzzFrame(f *testing.F) {
	f.Add(frameOf(0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xff, 0, 2, 'x', 2, '1', 0))
	f.Add(frameOf(0, 18, 0, 99, 0, 0, 0, 1))
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff, 0, 0})
	for _, kind := range requests {
		r := kmsg.RequestForKey(kind.key)
		r.SetVersion(kind.max)
		f.Add(kmsg.NewRequestFormatter().AppendRequest(nil, r, 1))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s := NewServer(nil, Options{MaxRequestBytes: 1 << 20, RequestMemory: 4 << 20})
		for key, kind := range s.kinds { // parse all, and do nothing
			harmless := *kind
			harmless.handle = func(_ *Server, _ *call, r kmsg.Request) answer { return respond(r.ResponseKind()) }
			s.kinds[key] = &harmless
		}
		here, there := net.Pipe()
		c := newConnection(t.Context(), s, here, s.options.listeners()[0])
		var both sync.WaitGroup
		both.Go(func() { _ = c.read(c.ctx) })
		both.Go(func() { _ = c.send(c.ctx) })
		both.Go(func() { _, _ = io.Copy(io.Discard, bufio.NewReader(there)) })
		_, _ = there.Write(data)
		_ = there.Close()
		both.Wait()
		if s.requests.Used() != 0 || s.large.Used() != 0 {
			t.Errorf("a connection that ended holds %d and %d bytes", s.requests.Used(), s.large.Used())
		}
	})
}
