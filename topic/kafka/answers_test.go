package kafka

import (
	"fmt"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

// largeGroups adds groups that bring a MiB of metadata each, and returns a request for all of them.
func largeGroups(t *testing.T, s *Server, count int) *kmsg.DescribeGroupsRequest {
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Version = 5
	for i := range count {
		name := fmt.Sprint("group ", i)
		aGroup(t, s.broker, name, 1<<20-100)
		r.Groups = append(r.Groups, name)
	}
	return r
}

// A group that does not fit into an answer has an error in its place, and the rest is answered.
func TestAnAnswerIsBounded(t *testing.T) {
	s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{MaxAnswerBytes: 4 << 20})
	r := largeGroups(t, s, 10)
	described, refused := 0, 0
	for _, g := range ask[*kmsg.DescribeGroupsResponse](dial(t, s), 5, r).Groups {
		if g.ErrorCode == 0 {
			described++
			continue
		}
		wantCode(t, g.Group, g.ErrorCode, kerr.PolicyViolation)
		refused++
	}
	if described != 3 || refused != 7 {
		t.Errorf("%d groups of 1 MiB are described and %d refused, want 3 and 7 with 4 MiB", described, refused)
	}
	until.True(t, "the memory is back", func() bool { return s.answers.Used() == 0 })
}

// Clients that ask for large answers and do not read them hold bounded memory, for a bounded time,
// and others get theirs.
func TestLargeAnswersThatAreNotRead(t *testing.T) {
	t.Parallel()
	const memory, most = 8 << 20, 4 << 20
	var lines log
	s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{
		FetchMemory: memory, MaxAnswerBytes: most, WriteTimeout: 5 * time.Second, Logger: lines.logger(),
	})
	r := largeGroups(t, s, 3)
	askUnread(t, s, 20, 5, r) // more than the network buffers
	// The first ones may have been ended before this looks.
	until.True(t, "they hold all memory", func() bool { return s.answers.Contended() || lines.has(errUnreceived.Error()) })
	good := dial(t, s)
	for range 3 {
		if got := len(ask[*kmsg.DescribeGroupsResponse](good, 5, r).Groups); got != 3 {
			t.Fatalf("%d groups, want 3", got)
		}
		if used := s.answers.Used(); used > memory+largeAtOnce*most {
			t.Fatalf("answers hold %d bytes, want at most %d", used, memory+largeAtOnce*most)
		}
	}
	until.True(t, "those that do not read are closed", func() bool { return s.connected() == 1 })
	until.True(t, "their memory is back", func() bool { return s.answers.Used()+s.turns.Used()+s.requests.Used() == 0 })
}

// Acknowledgements do not wait for the memory that large answers hold.
func TestSmallAnswersNeedNoMemory(t *testing.T) {
	s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{})
	create(t, s.broker, "orders", 1)
	if _, err := s.answers.Take(t.Context(), s.options.FetchMemory, s.options.FetchMemory); err != nil {
		t.Fatal(err)
	}
	got := ask[*kmsg.ProduceResponse](dial(t, s), 11, produceRequest("orders", 0, batchOf([]byte("x"))))
	wantCode(t, "produce", got.Topics[0].Partitions[0].ErrorCode, nil)
}

// A request that waits for others gives way when its connection holds memory that others need.
func TestRequestsBehindAWaitingOneGiveWay(t *testing.T) {
	s := start(t, startBroker(t, storetest.NewMemory(), topic.Config{}), Options{MaxRequestBytes: 1 << 20, RequestMemory: 2 << 20})
	create(t, s.broker, "orders", 1)
	create(t, s.broker, "nothing", 1)
	greedy := dial(t, s)
	waiting := fetchRequest("nothing", 0, 0)
	waiting.MaxWaitMillis = 290_000
	first := greedy.send(waiting)
	large := produceRequest("orders", 0, batchOf(make([]byte, 800<<10)))
	greedy.send(large)
	greedy.send(large)
	until.True(t, "it holds most memory", func() bool { return s.requests.Used() > 1600<<10 })
	got := ask[*kmsg.ProduceResponse](dial(t, s), 11, large)
	wantCode(t, "produce", got.Topics[0].Partitions[0].ErrorCode, nil)
	greedy.receive(waiting, first)
}
