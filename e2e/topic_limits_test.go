package e2e

import (
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Connections that send malformed requests are closed soon, without harm to others.
func TestTopicMalformedFrames(t *testing.T) {
	count := 400
	if long() {
		count = 8000
	}
	s := newServer(t)
	s.start()
	w := newWitness(s)
	before, connections := s.memory(), w.connections()
	var senders sync.WaitGroup
	work := make(chan int)
	for range 8 {
		senders.Go(func() {
			for i := range work {
				sendMalformed(s, malformed(uint64(i)))
			}
		})
	}
	for i := range count {
		work <- i
	}
	close(work)
	senders.Wait()
	w.unharmed()
	w.released(connections)
	// None of the frames is kept: the bound allows for garbage of some MiB of frames.
	w.bounded("malformed frames", before, 96<<20)
}

// malformed returns bytes that are not a request, or a request with a few bytes changed.
func malformed(seed uint64) []byte {
	random := rand.New(rand.NewPCG(seed, 1))
	noise := func(most int) []byte {
		b := make([]byte, random.IntN(most))
		for i := range b {
			b[i] = byte(random.Uint32())
		}
		return b
	}
	switch seed % 8 {
	case 0:
		return noise(4096)
	case 1: // negative sizes
		return append(sized(uint32(1<<31)|random.Uint32()), noise(100)...)
	case 2: // sizes above the bound
		return append(sized(uint32(101<<20+random.IntN(1<<30))), noise(2000)...)
	case 3: // allowed sizes with little data
		return append(sized(uint32(random.IntN(100<<20))), noise(2000)...)
	case 4: // whole frames of noise
		body := noise(4096)
		return append(sized(uint32(len(body))), body...)
	}
	frame := anyRequest(random)
	switch seed % 8 {
	case 5: // of another API or version
		frame[4+random.IntN(4)] = byte(random.Uint32())
	case 6: // with wrong bytes
		for range 1 + random.IntN(4) {
			frame[4+random.IntN(len(frame)-4)] = byte(random.Uint32())
		}
	case 7: // cut off, with a matching size
		body := frame[4 : 4+random.IntN(len(frame)-4)]
		frame = append(sized(uint32(len(body))), body...)
	}
	return frame
}

func sized(size uint32) []byte {
	return []byte{byte(size >> 24), byte(size >> 16), byte(size >> 8), byte(size)}
}

// anyRequest returns the frame of a random request and version.
func anyRequest(random *rand.Rand) []byte {
	for {
		request := kmsg.RequestForKey(int16(random.IntN(int(kmsg.MaxKey) + 1)))
		if request == nil {
			continue
		}
		request.SetVersion(int16(random.IntN(int(request.MaxVersion()) + 1)))
		return kmsg.NewRequestFormatter(kmsg.FormatterClientID("noise")).AppendRequest(nil, request, 1)
	}
}

// sendMalformed sends data, and fails unless the connection then ends.
func sendMalformed(s *server, data []byte) {
	conn, err := net.Dial("tcp", s.kafka)
	if err != nil {
		s.t.Error(err)
		return
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Minute))
	if _, err := conn.Write(data); err != nil {
		return // the server has already closed it
	}
	_ = conn.(*net.TCPConn).CloseWrite()
	if _, err := io.Copy(io.Discard, conn); errors.Is(err, os.ErrDeadlineExceeded) {
		s.t.Errorf("the connection is still open a minute after %d bytes %.40x", len(data), data)
	}
}

// Thousands of connections, most of them idle, some busy and some waiting for records, cost little
// and do not block others. However they end, everything is released.
func TestTopicManyConnections(t *testing.T) {
	count := 1000
	if long() {
		count = 5000
	}
	needFiles(t, count+500)
	s := newServer(t)
	s.start()
	w := newWitness(s)
	before, connections := s.memory(), w.connections()
	peers := make([]*peer, count)
	for i := range peers {
		peers[i] = s.peer()
	}
	until.True(t, "all are accepted", func() bool { return w.connections() >= count })
	w.bounded("idle connections", before, 32<<20+int64(count)*20<<10)
	for i, p := range peers {
		switch i % 10 {
		case 0:
			p.send(kmsg.NewPtrApiVersionsRequest(), 0)
		case 1:
			p.send(fetchOf(w.topic, 1, 1<<40, 60_000, 1<<20), 4) // error: the offset is out of range
		case 2:
			p.send(fetchOf(w.topic, 1, 0, 60_000, 1<<20), 4)
		case 3:
			_ = p.conn.(*net.TCPConn).CloseWrite()
		}
	}
	for i, p := range peers {
		if i%10 < 3 {
			p.receive()
		}
	}
	w.unharmed()
	w.bounded("connections at work", before, 64<<20+int64(count)*40<<10)
	until.True(t, "those that are half closed are released", func() bool {
		return w.connections() <= connections+count-count/10
	})
	for i, p := range peers {
		if i%2 == 0 {
			_ = p.conn.(*net.TCPConn).SetLinger(0) // reset the connection
		}
		_ = p.conn.Close()
	}
	w.released(connections)
}

// needFiles fails unless count files may be open; Go has raised the soft limit to the hard one,
// here and in the server.
func needFiles(t *testing.T, count int) {
	t.Helper()
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if limit.Cur < uint64(count) {
		t.Fatalf("at most %d files may be open, want %d: raise the hard limit, as with \"ulimit -Hn %d\"", limit.Cur, count, count)
	}
}

// Consumers that request much and read nothing take a bounded part of the server's memory, and
// others still get their records.
func TestTopicSlowConsumers(t *testing.T) {
	t.Parallel()
	const count = 60
	s := newServer(t)
	s.env = []string{"SLUICE_TOPIC_TAIL_BYTES=100000"} // so that each reads from the disk
	s.start()
	w := newWitness(s)
	const partitions = 30
	s.newTopic("large", partitions)
	producer := s.connect(kgo.ProducerBatchCompression(kgo.NoCompression()))
	for i := range 2 * partitions {
		record := &kgo.Record{Topic: "large", Partition: int32(i % partitions), Value: make([]byte, 900_000)}
		producer.Produce(t.Context(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	before, connections := s.memory(), w.connections()
	peers := make([]*peer, count)
	for i := range peers {
		peers[i] = s.peer()
		_ = peers[i].conn.(*net.TCPConn).SetReadBuffer(4 << 10)
		for range 20 {
			peers[i].send(fetchOf("large", partitions, 0, 1000, 50<<20), 4)
		}
	}
	until.True(t, "they hold memory", func() bool {
		held, err := s.metric("topic_kafka_fetch_memory_bytes")
		return err == nil && held > 50<<20
	})
	for range 5 {
		w.unharmed()
		// Answers may take 256 MiB plus one batch each, reads in flight and the engine's cache 128
		// MiB; garbage doubles this until it is collected.
		w.bounded("slow consumers", before, 2*(256<<20+128<<20+count<<20))
	}
	if long() { // the server closes connections that receive nothing for 30 s
		w.forgotten("topic_kafka_fetch_memory_bytes")
	}
	for _, p := range peers {
		_ = p.conn.Close()
	}
	w.released(connections)
	w.forgotten("topic_kafka_fetch_memory_bytes")
}

// Producers that begin a request and stop, hundreds with small ones and some with large ones, take
// a bounded part of the memory; others are not delayed.
func TestTopicHalfFrames(t *testing.T) {
	t.Parallel()
	small, large := 400, 8
	s := newServer(t)
	s.start()
	w := newWitness(s)
	before, connections := s.memory(), w.connections()
	peers := make([]*peer, 0, small+large)
	for range small {
		p := s.peer()
		peers = append(peers, p)
		p.write(append(sized(1_000_000), 0, 0, 0, 9, 0, 0, 0, 1))
	}
	w.unharmed()
	part := make([]byte, 40<<20)
	copy(part, append(sized(100<<20), 0, 0, 0, 9, 0, 0, 0, 1))
	var sending sync.WaitGroup
	for range large {
		p := s.peer()
		peers = append(peers, p)
		_ = p.conn.SetWriteDeadline(time.Now().Add(3 * time.Second)) // the server does not read all at once
		sending.Go(func() { _, _ = p.conn.Write(part) })
	}
	for range 3 {
		w.unharmed()
		// Requests may take 256 MiB; copies made while they grew may take as much.
		w.bounded("half frames", before, 512<<20)
	}
	sending.Wait()
	if !long() {
		for _, p := range peers {
			_ = p.conn.Close()
		}
	} // otherwise the server closes them when the rest has not come for 30 s
	w.released(connections)
	w.forgotten("topic_kafka_request_memory_bytes")
	w.unharmed()
}

// peer is a connection on which the test sends raw requests.
type peer struct {
	server *server
	conn   net.Conn
}

func (s *server) peer() *peer {
	s.t.Helper()
	conn, err := net.Dial("tcp", s.kafka)
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(func() { _ = conn.Close() })
	return &peer{s, conn}
}

func (p *peer) write(data []byte) {
	p.server.t.Helper()
	if _, err := p.conn.Write(data); err != nil {
		p.server.t.Fatal(err)
	}
}

func (p *peer) send(request kmsg.Request, version int16) {
	p.server.t.Helper()
	request.SetVersion(version)
	p.write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("peer")).AppendRequest(nil, request, 1))
}

// receive reads one answer and drops it.
func (p *peer) receive() {
	p.server.t.Helper()
	_ = p.conn.SetReadDeadline(time.Now().Add(time.Minute))
	var size [4]byte
	_, err := io.ReadFull(p.conn, size[:])
	if err == nil {
		_, err = io.CopyN(io.Discard, p.conn, int64(size[0])<<24|int64(size[1])<<16|int64(size[2])<<8|int64(size[3]))
	}
	if err != nil {
		p.server.t.Fatalf("an answer: %v", err)
	}
}

// fetchOf returns a fetch of the first partitions of a topic.
func fetchOf(topic string, partitions int, offset int64, waitMillis, most int32) *kmsg.FetchRequest {
	request := kmsg.NewPtrFetchRequest()
	request.MaxWaitMillis, request.MinBytes, request.MaxBytes = waitMillis, 1, most
	asked := kmsg.NewFetchRequestTopic()
	asked.Topic = topic
	for partition := range int32(partitions) {
		part := kmsg.NewFetchRequestTopicPartition()
		part.Partition, part.FetchOffset, part.PartitionMaxBytes = partition, offset, most
		asked.Partitions = append(asked.Partitions, part)
	}
	request.Topics = []kmsg.FetchRequestTopic{asked}
	return request
}
