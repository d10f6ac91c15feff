package natsstore

import (
	"encoding/json"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
)

// refusedByStaleLeader lets a former leader answer appends before the leader. The appends
// that it refuses are written nevertheless, and their outcome comes from the log.
func refusedByStaleLeader(t *testing.T, ns *nodes) {
	ns.log(1, "disputed", 1, 2, 3)
	from := ns.leader("disputed")%3 + 1
	l := ns.log(from, "disputed")
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

	other := ns.log(from%3+1, "disputed")
	if err := <-send(other, last+1); err != nil {
		t.Fatal(err)
	}
	if err := <-appended(l, last+1); !errors.Is(err, topic.ErrFenced) {
		t.Errorf("append where another's entry is: %v, want ErrFenced", err)
	}
	for _, sequence := range []uint64{1, last + 1, last + 3} {
		if err := <-send(l, sequence); !errors.Is(err, topic.ErrFenced) {
			t.Errorf("append %d, which does not follow %d: %v, want ErrFenced", sequence, last+1, err)
		}
	}

	// An append is on its way until its place was taken and removed again. It has its number before
	// that: once this node has heard that the log goes on, ErrFenced is right.
	removed := make(chan error, 1)
	notDue := time.Now().Add(time.Hour) // or the log might send it again by itself
	number, err := l.enter(notDue, numbered(last+2), func(err error) { removed <- err })
	if err != nil {
		t.Fatal(err)
	}
	wantOutcomes(t, send(other, last+2, last+3), nil, nil)
	if err := other.Trim(t.Context(), last+3); err != nil {
		t.Fatal(err)
	}
	for _, node := range ns.running() {
		until.True(t, "the replica has removed it too", func() bool { return firstAt(t, ns.node(node), l.source) == last+3 })
	}
	l.answer(number, &nats.Msg{Data: staleAnswer(t)})
	if err := <-removed; !errors.Is(err, topic.ErrUncertain) {
		t.Errorf("append where another's entry was removed: %v, want ErrUncertain", err)
	}
}

// firstAt returns the first sequence in a node's own replica of a stream.
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

// appended appends a numbered entry.
func appended(l *log, sequence uint64) <-chan error {
	outcome := make(chan error, 1)
	l.Append(numbered(sequence), func(err error) { outcome <- err })
	return outcome
}

// refuse answers all appends to a subject as a replica with an empty log does.
func refuse(t *testing.T, s *Store, subject string) {
	t.Helper()
	conn, err := connect(s.engine, s.options.Logger)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(conn.Close)
	answer := staleAnswer(t)
	if err := subscribe(conn, subject, func(message *nats.Msg) { _ = message.Respond(answer) }); err != nil {
		t.Fatal(err)
	}
	if err := conn.Flush(); err != nil {
		t.Fatal(err)
	}
}

// staleAnswer is how a replica with an empty log answers an append.
func staleAnswer(t *testing.T) []byte {
	t.Helper()
	answer, err := json.Marshal(server.JSPubAckResponse{
		PubAck: &server.PubAck{Stream: "log"}, Error: server.NewJSStreamWrongLastSequenceError(0),
	})
	if err != nil {
		t.Fatal(err)
	}
	return answer
}

// droppedAppends drops appends before they reach the engine. They are sent again, in order,
// with later ones that were refused.
func droppedAppends(t *testing.T, ns *nodes) {
	ns.log(1, "dropped", 1, 2, 3)
	l := ns.log(ns.leader("dropped")%3+1, "dropped")
	last := uint64(0)
	for _, dropped := range []int{1, 3} {
		var outcomes []<-chan error
		for range dropped {
			last++
			outcome := make(chan error, 1)
			if _, err := l.enter(time.Now(), numbered(last), func(err error) { outcome <- err }); err != nil {
				t.Fatal(err)
			}
			outcomes = append(outcomes, outcome)
		}
		for range 2 {
			last++
			outcomes = append(outcomes, appended(l, last))
		}
		for i, outcome := range outcomes {
			if err := <-outcome; err != nil {
				t.Errorf("append %d of %d, the first %d of which were dropped: %v", i+1, len(outcomes), dropped, err)
			}
		}
	}
	checkNumbered(t, l, last)
}

// appendsSentTwice sends appends again that were not dropped.
func appendsSentTwice(t *testing.T, ns *nodes) {
	ns.log(1, "twice", 1, 2, 3)
	l := ns.log(ns.leader("twice")%3+1, "twice")
	for last := uint64(1); last <= 100; last += 10 {
		var outcomes []<-chan error
		for i := range uint64(10) {
			outcomes = append(outcomes, appended(l, last+i))
		}
		l.resend(time.Now().Add(resendAfter))
		for i, outcome := range outcomes {
			if err := <-outcome; err != nil {
				t.Errorf("append %d: %v", last+uint64(i), err)
			}
		}
	}
	checkNumbered(t, l, 100)
}

// refusedAfterResend answers appends that nobody leads the log, or that the disk is full. Of one
// that was sent once this is its outcome; of one that was sent again, another send may be written:
// a change of the metadata that is told as not written is made twice.
func refusedAfterResend(t *testing.T, ns *nodes) {
	l := ns.log(1, "resent", 1, 2, 3)
	full, err := json.Marshal(server.JSPubAckResponse{PubAck: &server.PubAck{Stream: "log"}, Error: server.NewJSStorageResourcesExceededError()})
	if err != nil {
		t.Fatal(err)
	}
	for name, refusal := range map[string]struct {
		message *nats.Msg
		certain error
	}{
		"no leader": {&nats.Msg{Header: nats.Header{"Status": {noResponders}}}, errNoLeader},
		"full":      {&nats.Msg{Data: full}, topic.ErrFull},
	} {
		for sent := 1; sent <= 2; sent++ {
			outcome := make(chan error, 1)
			notDue := time.Now().Add(time.Hour) // or the log might send it again by itself
			number, err := l.enter(notDue, numbered(1), func(err error) { outcome <- err })
			if err != nil {
				t.Fatal(err)
			}
			l.mu.Lock()
			l.queue.at(number).sent = sent
			l.mu.Unlock()
			l.answer(number, refusal.message)
			err = <-outcome
			if certain := errors.Is(err, refusal.certain); certain != (sent == 1) || !certain && !errors.Is(err, topic.ErrUncertain) {
				t.Errorf("%s, sent %d times: %v", name, sent, err)
			}
		}
	}
}

// appendsWhileReplicasChange adds replicas to a log with one replica, and removes them, under
// load. The engine drops appends at these moments, but none fails.
func appendsWhileReplicasChange(t *testing.T, ns *nodes) {
	l := ns.log(1, "changing", 1)
	over, last := make(chan struct{}), make(chan uint64, 1)
	go func() {
		sequence := uint64(0)
		defer func() { last <- sequence }()
		for {
			sequence++
			if err := <-appended(l, sequence); err != nil {
				t.Errorf("append %d: %v", sequence, err)
				return
			}
			select {
			case <-over:
				return
			default:
			}
		}
	}()
	for range 3 {
		for _, on := range [][]int32{{1, 2, 3}, {1}} {
			until.True(t, "the replicas have changed", func() bool {
				placed, err := ns.node(1).cluster.Place(t.Context(), "changing", on)
				return err == nil && placed
			})
		}
	}
	close(over)
	checkNumbered(t, l, <-last)
}
