package e2e

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// witness is a well-behaved client during the faults of others: it produces and consumes records in
// a loop.
type witness struct {
	server  *server
	topic   string
	rounds  atomic.Int64
	slowest atomic.Int64 // nanoseconds
}

func newWitness(s *server) *witness {
	s.t.Helper()
	w := &witness{server: s, topic: "witness"}
	s.newTopic(w.topic, 1)
	client := s.connect(kgo.ConsumeTopics(w.topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.ProducerLinger(0))
	stop := inBackground(func(ctx context.Context) { w.run(ctx, client) })
	s.t.Cleanup(func() {
		stop()
		s.t.Logf("the witness did %d rounds, the slowest in %v", w.rounds.Load(), time.Duration(w.slowest.Load()))
	})
	w.unharmed()
	return w
}

func (w *witness) run(ctx context.Context, client *kgo.Client) {
	for ctx.Err() == nil {
		began := time.Now()
		sent := &kgo.Record{Topic: w.topic, Value: fmt.Append(nil, began.UnixNano())}
		if err := client.ProduceSync(ctx, sent).FirstErr(); err != nil {
			if ctx.Err() == nil {
				w.server.t.Errorf("the witness cannot produce: %v", err)
			}
			return
		}
		for got := false; !got; {
			fetches := client.PollFetches(ctx)
			if err := fetches.Err(); err != nil {
				if ctx.Err() == nil {
					w.server.t.Errorf("the witness cannot consume: %v", err)
				}
				return
			}
			fetches.EachRecord(func(r *kgo.Record) { got = got || r.Offset == sent.Offset && string(r.Value) == string(sent.Value) })
		}
		w.rounds.Add(1)
		w.slowest.Store(max(w.slowest.Load(), int64(time.Since(began))))
		pause(ctx, 10*time.Millisecond)
	}
}

// unharmedTime bounds the first request of a new client.
const unharmedTime = until.Limit

// unharmed fails unless the witness proceeds and a new client is served.
func (w *witness) unharmed() {
	w.server.t.Helper()
	before := w.rounds.Load()
	until.True(w.server.t, "the witness goes on", func() bool { return w.rounds.Load() >= before+5 })
	ctx, cancel := context.WithTimeout(context.Background(), unharmedTime)
	defer cancel()
	client := w.server.connect()
	defer client.Close()
	if err := client.Ping(ctx); err != nil {
		w.server.t.Fatalf("a client that comes now is not served: %v", err)
	}
}

// connections returns the number of open connections.
func (w *witness) connections() int {
	w.server.t.Helper()
	n, err := w.server.metric("topic_kafka_connections")
	if err != nil {
		w.server.t.Fatal(err)
	}
	return int(n)
}

// released waits until at most the given number of connections is open, and two more that the
// witness may have opened.
func (w *witness) released(most int) {
	w.server.t.Helper()
	until.True(w.server.t, "connections are released", func() bool { return w.connections() <= most+2 })
}

// bounded fails if the server's memory has grown by more than most.
func (w *witness) bounded(what string, before, most int64) {
	w.server.t.Helper()
	grown := w.server.memory() - before
	w.server.t.Logf("%s: the server's memory has grown by %d MiB, at most %d are allowed", what, grown>>20, most>>20)
	if grown > most {
		w.server.t.Errorf("%s: the server's memory has grown by %d bytes, want at most %d", what, grown, most)
	}
}

// forgotten waits until a metric reports that almost no memory is held; the witness continues.
func (w *witness) forgotten(metric string) {
	w.server.t.Helper()
	until.True(w.server.t, metric+" falls", func() bool {
		held, err := w.server.metric(metric)
		return err == nil && held < 1<<20
	})
}
