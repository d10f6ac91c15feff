package kafka

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"log/slog"
	"net"
	"os"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kbin"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/storetest"
)

// startBroker returns a broker over a store, stopped at the end of the test.
func startBroker(t testing.TB, store topic.Store, config topic.Config) *broker.Broker {
	t.Helper()
	b, err := broker.New(store, config)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, b.Stop) })
	return b
}

// start returns a server on a free port, stopped at the end of the test.
func start(t testing.TB, b *broker.Broker, options Options) *Server {
	t.Helper()
	options.Addr = "127.0.0.1:0"
	if options.Logger == nil {
		options.Logger = slog.New(slog.NewTextHandler(t.Output(), &slog.HandlerOptions{Level: slog.LevelWarn}))
	}
	s := NewServer(b, options)
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stop(t, s.Stop) })
	return s
}

// serve returns a server over a broker with an empty store.
func serve(t testing.TB, config topic.Config) (*Server, *broker.Broker) {
	t.Helper()
	b := startBroker(t, storetest.NewMemory(), config)
	return start(t, b, Options{}), b
}

func stop(t testing.TB, how func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := how(ctx); err != nil {
		t.Error(err)
	}
}

// create creates a topic.
func create(t testing.TB, b *broker.Broker, name string, partitions int32) *broker.Topic {
	t.Helper()
	made, err := b.Create(t.Context(), topic.Spec{Name: name, Partitions: partitions}, false)
	if err != nil {
		t.Fatal(err)
	}
	return made
}

// peer is a client that encodes requests itself.
type peer struct {
	t    testing.TB
	conn net.Conn
	next int32
}

// patience bounds operations that should be immediate.
const patience = until.Limit

// dial connects to a server; the connection is closed at the end of the test.
func dial(t testing.TB, s *Server) *peer {
	t.Helper()
	return dialAt(t, s.Addr())
}

func dialAt(t testing.TB, address string) *peer {
	t.Helper()
	conn, err := net.Dial("tcp", address)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	_ = conn.SetDeadline(time.Now().Add(patience))
	return &peer{t: t, conn: conn}
}

// send sends a request without waiting for its answer.
func (p *peer) send(r kmsg.Request) (correlation int32) {
	p.t.Helper()
	p.next++
	p.write(kmsg.NewRequestFormatter(kmsg.FormatterClientID("test")).AppendRequest(nil, r, p.next))
	return p.next
}

func (p *peer) write(data []byte) {
	p.t.Helper()
	if _, err := p.conn.Write(data); err != nil {
		p.t.Fatal(err)
	}
}

// receive reads the answer to a request.
func (p *peer) receive(r kmsg.Request, correlation int32) kmsg.Response {
	p.t.Helper()
	body := p.frame()
	reader := kbin.Reader{Src: body}
	if got := reader.Int32(); got != correlation {
		p.t.Fatalf("correlation id %d, want %d", got, correlation)
	}
	response := r.ResponseKind()
	if response.IsFlexible() && r.Key() != keyAPIVersions {
		kmsg.SkipTags(&reader)
	}
	if err := response.ReadFrom(reader.Src); err != nil {
		p.t.Fatalf("read the answer to %s: %v", kmsg.NameForKey(r.Key()), err)
	}
	return response
}

func (p *peer) frame() []byte {
	p.t.Helper()
	size := make([]byte, sizeBytes)
	if _, err := io.ReadFull(p.conn, size); err != nil {
		p.t.Fatal(err)
	}
	body := make([]byte, binary.BigEndian.Uint32(size))
	if _, err := io.ReadFull(p.conn, body); err != nil {
		p.t.Fatal(err)
	}
	return body
}

// ask sends a request in a version and returns its answer.
func ask[R kmsg.Response](p *peer, version int16, r kmsg.Request) R {
	p.t.Helper()
	r.SetVersion(version)
	return p.receive(r, p.send(r)).(R)
}

// closed fails unless the server closes the connection without an answer.
func (p *peer) closed() {
	p.t.Helper()
	n, err := p.conn.Read(make([]byte, 1))
	if n != 0 || err == nil {
		p.t.Fatal("the server answered, want a closed connection")
	}
	if errors.Is(err, os.ErrDeadlineExceeded) {
		p.t.Fatal("the server left the connection open, want it closed")
	}
}

// client returns a client of franz-go.
func client(t testing.TB, s *Server, options ...kgo.Opt) *kgo.Client {
	t.Helper()
	c, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.Addr())}, options...)...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

// wantCode fails unless an answer has the error.
func wantCode(t testing.TB, what string, got int16, want *kerr.Error) {
	t.Helper()
	if want == nil {
		if got != 0 {
			t.Fatalf("%s: %v, want no error", what, kerr.ErrorForCode(got))
		}
		return
	}
	if got != want.Code {
		t.Fatalf("%s: %v, want %v", what, kerr.ErrorForCode(got), want)
	}
}

// storeInMemory returns an empty store.
func storeInMemory() topic.Store { return storetest.NewMemory() }
