package natsstore

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sluice-project/sluice/topic"
)

// TestDisputedAppends has a leader that was deposed, and has not heard of it, answer
// appends before the one that leads: what it refuses is written all the same, and
// what it does not know is asked of the log.
func TestDisputedAppends(t *testing.T) {
	t.Parallel()
	ns := startNodes(t, 3, func(o *Options) { o.Timeout = 3 * time.Second })
	ns.open(1, "log", 1, 2, 3)
	from := ns.leader("log")%3 + 1
	l := ns.open(from, "log")
	refuse(t, ns.node(from), l.message.Subject)
	last := uint64(0)
	for _, atOnce := range []int{1, 1, 1, 3, 10} {
		var outcomes []<-chan error
		for range atOnce {
			last++
			outcomes = append(outcomes, appended(l, last))
		}
		for _, outcome := range outcomes {
			if err := <-outcome; err != nil {
				t.Fatalf("append, up to %d, %d at once: %v", last, atOnce, err)
			}
		}
	}
	checkNumbered(t, l, last)

	other := ns.open(from%3+1, "log")
	if err := <-send(other, last+1); err != nil {
		t.Fatal(err)
	}
	began := time.Now()
	if err := <-appended(l, last+1); !errors.Is(err, topic.ErrFenced) {
		t.Errorf("append where another's entry is: %v, want ErrFenced", err)
	}
	for _, sequence := range []uint64{1, last + 1, last + 3} {
		if err := <-send(l, sequence); !errors.Is(err, topic.ErrFenced) {
			t.Errorf("append %d, which does not follow %d: %v, want ErrFenced", sequence, last+1, err)
		}
	}
	if took := time.Since(began); took > l.store.options.Timeout {
		t.Errorf("refusals took %v", took)
	}
	wantOutcomes(t, send(other, last+2, last+3), nil, nil)
	if err := other.Trim(t.Context(), last+3); err != nil {
		t.Fatal(err)
	}
	for _, node := range ns.running() {
		eventually(t, "the replica has removed it too", func() bool { return firstAt(t, ns.node(node), l.source) == last+3 })
	}
	if err := <-appended(l, last+2); !errors.Is(err, topic.ErrUncertain) {
		t.Errorf("append where another's entry was removed: %v, want ErrUncertain", err)
	}
}

// firstAt returns where a stream begins for a node's own replica.
func firstAt(t *testing.T, s *Store, stream string) uint64 {
	t.Helper()
	info, err := s.engine.Jsz(&server.JSzOptions{Accounts: true, Streams: true})
	if err != nil {
		t.Fatal(err)
	}
	for _, of := range info.AccountDetails {
		for _, found := range of.Streams {
			if found.Name == stream {
				return found.State.FirstSeq
			}
		}
	}
	return 0
}

// appended sends an entry that tells its number.
func appended(l *log, sequence uint64) <-chan error {
	outcome := make(chan error, 1)
	l.Append(numbered(sequence), func(err error) { outcome <- err })
	return outcome
}

// refuse answers all that is appended to a subject as who knows nothing of a log.
func refuse(t *testing.T, s *Store, subject string) {
	t.Helper()
	conn, err := connect(s.engine, s.options.Logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	refused := server.JSPubAckResponse{PubAck: &server.PubAck{Stream: "log"}, Error: server.NewJSStreamWrongLastSequenceError(0)}
	answer, err := json.Marshal(refused)
	if err != nil {
		t.Fatal(err)
	}
	if err := subscribe(conn, subject, func(message *nats.Msg) { _ = message.Respond(answer) }); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}
