package kafka

import (
	"math"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// takeAppends takes all turns for appends, and returns what gives them back.
func takeAppends(t *testing.T, s *Server) (giveBack func()) {
	t.Helper()
	got, err := s.appends.Take(t.Context(), math.MaxInt64, math.MaxInt64)
	if err != nil {
		t.Fatal(err)
	}
	return func() { s.appends.Change(got) }
}

// While a Produce request waits for its turn, requests of other kinds are answered, and its connection is not read: what it
// asks for next waits too.
func TestOnlyProduceRequestsHaveTurns(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	create(t, b, "orders", 1)
	s := start(t, b, Options{})
	giveBack := takeAppends(t, s)
	waiting := dial(t, s)
	r := produceRequest("orders", 0, batchOf([]byte("one")))
	waiting.write(kmsg.NewRequestFormatter().AppendRequest(nil, r, 1))
	until.True(t, "the request waits for its turn", s.appends.Contended)
	held := s.requests.Used()
	waiting.write(kmsg.NewRequestFormatter().AppendRequest(nil, apiVersionsRequest(), 2))
	for range 3 {
		ask[*kmsg.ApiVersionsResponse](dial(t, s), 3, apiVersionsRequest())
		ask[*kmsg.FetchResponse](dial(t, s), 12, fetchRequest("orders", 0, 0))
	}
	if used := s.requests.Used(); used != held {
		t.Errorf("beside a request that waits, requests hold %d bytes, want %d: its connection is read on", used, held)
	}
	giveBack()
	answered := waiting.receive(r, 1).(*kmsg.ProduceResponse).Topics[0].Partitions[0]
	wantCode(t, "a request that had to wait", answered.ErrorCode, nil)
	waiting.receive(apiVersionsRequest(), 2)
	until.True(t, "all turns are back", func() bool { return s.appends.Used() == 0 })
}

// A connection that ends takes no turn.
func TestWhoIsGoneTakesNoTurn(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	to := create(t, b, "orders", 1)
	s := start(t, b, Options{})
	giveBack := takeAppends(t, s)
	gone := dial(t, s)
	r := produceRequest("orders", 0, batchOf([]byte("one")))
	gone.write(kmsg.NewRequestFormatter().AppendRequest(nil, r, 1))
	until.True(t, "the request waits for its turn", s.appends.Contended)
	s.mu.Lock()
	for c := range s.connections {
		c.cancel()
	}
	s.mu.Unlock()
	until.True(t, "nobody waits", func() bool { return !s.appends.Contended() && s.requests.Used() == 0 })
	giveBack()
	if p, err := to.Partition(0); err != nil || p.Ends().HighWatermark != 0 || s.appends.Used() != 0 {
		t.Errorf("the records are appended until %v (%v), %d of the turns are used", p.Ends(), err, s.appends.Used())
	}
}

// A Produce request whose answer waits for an earlier one of its connection keeps its turn for longestTurn only.
func TestTurnsLapse(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	create(t, b, "orders", 1)
	create(t, b, "empty", 1)
	s := start(t, b, Options{})
	p := dial(t, s)
	long := fetchRequest("empty", 0, 0)
	long.MaxWaitMillis = 1 << 30
	p.write(kmsg.NewRequestFormatter().AppendRequest(nil, long, 1))
	p.write(kmsg.NewRequestFormatter().AppendRequest(nil, produceRequest("orders", 0, batchOf([]byte("one"))), 2))
	until.True(t, "it has a turn", func() bool { return s.appends.Used() > 0 })
	until.True(t, "its turn has lapsed", func() bool { return s.appends.Used() == 0 })
}
