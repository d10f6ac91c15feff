package broker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/share"
	"github.com/sluice-project/sluice/topic/storetest"
)

// alterShare sets settings of the share group "g".
func alterShare(t *testing.T, b *broker.Broker, settings ...string) {
	t.Helper()
	changes := map[string]*string{}
	for i := 0; i < len(settings); i += 2 {
		changes[settings[i]] = &settings[i+1]
	}
	if err := b.AlterGroup(t.Context(), "g", changes, false, false); err != nil {
		t.Fatal(err)
	}
}

// lettersIn returns the records of a topic with one partition, with their headers.
func lettersIn(t *testing.T, in *broker.Topic) (letters []string) {
	t.Helper()
	for offset, end := int64(0), in.Partitions()[0].Ends().HighWatermark; offset < end; {
		fetched, err := in.Read(t.Context(), 0, offset, 1<<20)
		if err != nil {
			t.Fatal(err)
		}
		batches, err := topic.SplitBatches(slices.Concat(fetched.Data...))
		if err != nil {
			t.Fatal(err)
		}
		for _, b := range batches {
			for r, err := range b.Records() {
				if err != nil {
					t.Fatal(err)
				}
				letter := fmt.Sprintf("%s=%.9s", r.Key, r.Value)
				for _, h := range r.Headers {
					letter += fmt.Sprintf(" %s=%s", strings.TrimPrefix(h.Key, "__dlq.errors."), h.Value)
				}
				letters, offset = append(letters, letter), r.Offset+1
			}
		}
	}
	return letters
}

// letterOf is the letter of a record of orders.
func letterOf(record string, offset, count int, message string) string {
	return fmt.Sprintf("%s topic=orders partition=0 group=g delivery.count=%d message=%s offset=%d", record, count, message, offset)
}

// counted returns the value of a counter of the broker.
func counted(t *testing.T, b *broker.Broker, name string) float64 {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(b.Collector())
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			return f.Metric[0].GetCounter().GetValue()
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// wantStart checks before which offset all records are done in the share group "g".
func wantStart(t *testing.T, what string, b *broker.Broker, want int64) {
	t.Helper()
	if lags, err := b.GroupLag(t.Context(), "g"); err != nil || len(lags) != 1 || lags[0].Committed != want {
		t.Errorf("%s: %+v, %v; want %d", what, lags, err, want)
	}
}

// sendOrders sends records with a key and a header each, and one of 5,000 bytes.
func sendOrders(t *testing.T, to *broker.Topic) {
	t.Helper()
	var records []topic.Record
	for i, value := range []string{"a", "b", "c", strings.Repeat("large", 1000)} {
		records = append(records, topic.Record{Offset: int64(i), Timestamp: now(), Key: fmt.Append(nil, "k", i), Value: []byte(value),
			Headers: []topic.Header{{Key: "h", Value: []byte("v")}, {Key: "__dlq.errors.topic", Value: []byte("of another letter")}}})
	}
	batch, err := topic.NewBatch(records, topic.BatchOptions{})
	if err != nil {
		t.Fatal(err)
	}
	send(t, to, batch)
}

const (
	wasRejected  = "Offset rejected by client."
	wasExhausted = "Offset delivery count exceeded the threshold."
)

// Records that are rejected or were delivered too often wait, over a restart, until the topic of dead letters is there and
// takes them. Then they are done.
func TestDeadLetters(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		store := storetest.NewMemory()
		b := startBroker(t, store, fromStart)
		orders := create(t, b, "orders", nil)
		sendOrders(t, orders)
		alterShare(t, b, "errors.deadletterqueue.topic.name", "dead", "errors.deadletterqueue.copy.record.enable", "true")
		joinShare(t, b, "x", "orders")
		x := newSharer(t, orders, "x")
		wantValues(t, "x", x.get(3), "a", "b", "c")
		x.mustSay(share.Reject, 0, 0)
		x.mustSay(share.Release, 1, 1)
		x.mustSay(share.Accept, 2, 2)
		wantValues(t, "x, again", x.get(1), "b*2")
		x.mustSay(share.Release, 1, 1)
		time.Sleep(3 * time.Second)
		if failures := counted(t, b, "topic_share_dead_letter_failures_total"); failures < 2 {
			t.Errorf("%v failures without a topic of dead letters", failures)
		}

		stopBroker(t, b)
		b = startBroker(t, store.Reopen(), fromStart)
		dead := create(t, b, "dead", map[string]string{"max.message.bytes": "1000"})
		orders, err := b.Topic("orders")
		if err != nil {
			t.Fatal(err)
		}
		x = newSharer(t, orders, "x")
		time.Sleep(time.Minute)
		wantValues(t, "in a topic that takes no dead letters", lettersIn(t, dead))
		wantStart(t, "with records that wait for dead letters", b, 0)
		takes := "true"
		if err := b.Alter(t.Context(), "dead", map[string]*string{topic.SettingDeadLetters: &takes}, false, false); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		wantValues(t, "dead letters", lettersIn(t, dead), letterOf("k0=a h=v", 0, 1, wasRejected), letterOf("k1=b h=v", 1, 2, wasExhausted))
		if written := counted(t, b, "topic_share_dead_letters_total"); written != 2 {
			t.Errorf("%v letters are counted; want 2", written)
		}

		x.get(1) // one that is larger than a batch of the topic may be
		x.mustSay(share.Reject, 3, 3)
		synctest.Wait()
		wantValues(t, "of a large record", lettersIn(t, dead)[2:], letterOf("=", 3, 1, wasRejected))
		alterShare(t, b, "errors.deadletterqueue.copy.record.enable", "false")
		send(t, orders, batchOf(anybody, now(), "e"))
		x.get(1)
		x.mustSay(share.Reject, 4, 4)
		synctest.Wait()
		wantValues(t, "without a copy", lettersIn(t, dead)[3:], letterOf("=", 4, 1, wasRejected))
		wantStart(t, "when all have dead letters", b, 5)
	})
}

// The leader of a partition has dead letters appended by another node that leads the topic of dead letters, though that is away at
// first.
func TestDeadLettersOfAnotherNode(t *testing.T) {
	inCluster(t, fromStart, []string{"", "", ""}, func(t *testing.T, p *placed) {
		led := func(node int32, name string) *broker.Topic {
			p.nodes.LeadNew(node)
			return create(t, p.brokers[node], name, map[string]string{topic.SettingDeadLetters: "true"})
		}
		orders := led(1, "orders") // in the order in which the cluster prefers these leaders
		led(2, "dead")
		sendOrders(t, orders)
		alterShare(t, p.brokers[1], "errors.deadletterqueue.topic.name", "dead", "errors.deadletterqueue.copy.record.enable", "true")
		for _, b := range p.brokers {
			if b.Groups().Coordinates("g") {
				joinShare(t, b, "x", "orders")
			}
		}
		x := newSharer(t, orders, "x")
		wantValues(t, "x", x.get(1), "a")
		p.nodes.Cut(2)
		x.mustSay(share.Reject, 0, 0)
		time.Sleep(2 * time.Second)
		p.nodes.Heal(2)
		time.Sleep(2 * time.Minute)
		dead, err := p.brokers[2].Topic("dead")
		if err != nil {
			t.Fatal(err)
		}
		if failures := counted(t, p.brokers[1], "topic_share_dead_letter_failures_total"); failures == 0 {
			t.Error("no attempt has failed without the node")
		}
		letters := lettersIn(t, dead)
		if len(letters) == 0 || letters[0] != letterOf("k0=a h=v", 0, 1, wasRejected) {
			t.Errorf("dead letters %q", letters)
		}
	})
}
