package kafka

import (
	"context"
	"errors"
	"io"
	"math"
	"net"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/storetest"
)

// fixedQuota is a Meter of tests.
type fixedQuota struct {
	mu        sync.Mutex
	allowance int64
	wait      time.Duration
	spent     []int64
}

func (m *fixedQuota) Allowance() int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.allowance
}

// set changes what the quota allows, and how long it makes clients wait.
func (m *fixedQuota) set(allowance int64, wait time.Duration) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.allowance, m.wait = allowance, wait
}

func (m *fixedQuota) Spend(bytes int64) time.Duration {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.spent = append(m.spent, bytes)
	return m.wait
}

// takeSpent returns what was spent since the last call.
func (m *fixedQuota) takeSpent() []int64 {
	m.mu.Lock()
	defer m.mu.Unlock()
	spent := m.spent
	m.spent = nil
	return spent
}

// The answer to a request beyond the quota goes out at once and says how long to wait, and the connection's next request is
// read when that is over, also if there was no answer. A connection that waits can end.
func TestRequestsBeyondAQuotaMuteTheirConnection(t *testing.T) {
	const wait = 2500 * time.Millisecond
	all := newAccounts()
	m := &fixedQuota{wait: wait, allowance: math.MaxInt64}
	all.add(&account{name: "shop", meter: m})
	overPipeWith(t, all, func(t *testing.T, p *peer) {
		p.authenticateByScram("shop")
		produce := kmsg.NewPtrProduceRequest()
		fetch := kmsg.NewPtrFetchRequest()
		fetch.SessionEpoch = -1
		for _, acks := range []int16{-1, 0} {
			began := time.Now()
			if produce.Acks = acks; acks == 0 {
				produce.SetVersion(8)
				p.send(produce)
			} else if told := ask[*kmsg.ProduceResponse](p, 8, produce).ThrottleMillis; told != 2500 || time.Since(began) > 0 {
				t.Errorf("Produce: told to wait %d ms, after %v", told, time.Since(began))
			}
			for range 2 { // the first of them waits, and makes the second one wait
				told := ask[*kmsg.FetchResponse](p, 12, fetch).ThrottleMillis
				if waited := time.Since(began); told != 2500 || waited != wait {
					t.Errorf("acks %d: a Fetch is answered after %v, and told to wait %d ms", acks, waited, told)
				}
				began = time.Now()
			}
			ask[*kmsg.ApiVersionsResponse](p, 2, apiVersionsRequest())
		}
		if spent := m.takeSpent(); len(spent) != 6 || spent[0] < 20 || spent[1] != 0 {
			t.Errorf("spent %d, want the bytes of the Produce requests and none of the Fetch requests", spent)
		}
		m.set(math.MaxInt64, time.Minute)
		ask[*kmsg.FetchResponse](p, 12, fetch)
		p.send(fetch)
		all.revoke("shop")
		began := time.Now()
		if _, err := p.conn.Read(make([]byte, 1)); !errors.Is(err, io.EOF) || time.Since(began) > checkLogins {
			t.Errorf("revoked while it waits: %v after %v", err, time.Since(began))
		}
	})
}

// A connection that waits ends at once with its client or its server. A shorter wait does not end a longer one.
func TestWaitsEndWithTheirConnection(t *testing.T) {
	for name, test := range map[string]struct {
		end  func(*connection)
		want error
	}{
		"the connection ends": {func(c *connection) { c.cancel() }, context.Canceled},
		"the server stops":    {func(c *connection) { close(c.server.draining) }, errDraining},
		"the wait is over":    {func(*connection) { time.Sleep(time.Hour) }, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			here, there := net.Pipe()
			defer there.Close()
			c := newConnection(t.Context(), NewServer(nil, Options{}), here, &Listener{})
			defer c.cancel()
			c.throttle(time.Hour)
			c.throttle(time.Second)
			began, ended := time.Now(), make(chan error, 1)
			go func() { ended <- c.awaitThrottle() }()
			synctest.Wait()
			if len(ended) > 0 {
				t.Error("nothing is waited for")
			}
			test.end(c)
			after := time.Since(began)
			if err := <-ended; !errors.Is(err, test.want) || time.Since(began) != after {
				t.Errorf("%s: %v after %v more", name, err, time.Since(began)-after)
			}
		})
	}
}

// An answer has as many records as the quota allows, and at least a batch; none, but errors, if it allows nothing.
func TestFetchesWithinAQuota(t *testing.T) {
	all, m := newAccounts("boss"), &fixedQuota{}
	all.add(&account{name: "shop", meter: m})
	b := startBroker(t, storetest.NewMemory(), sharesFromStart)
	s := start(t, b, Options{Accounts: all})
	orders := create(t, b, "orders", 1)
	boss, p := dial(t, s), dial(t, s)
	boss.authenticate("boss")
	p.authenticate("shop")
	batch := batchOf(make([]byte, 1000))
	size := int64(len(batch))
	for range 5 {
		ask[*kmsg.ProduceResponse](boss, 11, produceRequest("orders", 0, batch))
	}
	joined := ask[*kmsg.ShareGroupHeartbeatResponse](boss, 1, newShareJoin("g", "x", "orders"))
	wantCode(t, "join", joined.ErrorCode, nil)
	for i, test := range []struct{ allowance, batches, shared int64 }{{0, 0, 0}, {1, 1, 1}, {3*size + 1, 3, 3}, {math.MaxInt64, 5, 1}} {
		m.set(test.allowance, time.Millisecond)
		r := fetchRequest("orders", 0, 0)
		r.MinBytes, r.MaxWaitMillis = int32(5*size), 290_000 // an answer that is to have less does not wait
		if test.allowance == 0 {
			r.Topics = append(r.Topics, fetchRequest("unknown", 0, 0).Topics...)
		}
		got := ask[*kmsg.FetchResponse](p, 12, r)
		part := got.Topics[0].Partitions[0]
		if spent := m.takeSpent(); int64(len(part.RecordBatches)) != test.batches*size || !slices.Equal(spent, []int64{test.batches * size}) || got.ThrottleMillis != 1 {
			t.Errorf("allowed %d: %d bytes, want %d batches of %d; spent %d, throttled %d ms", test.allowance, len(part.RecordBatches), test.batches, size, spent, got.ThrottleMillis)
		}
		if part.HighWatermark != 5 || len(got.Topics) > 1 && got.Topics[1].Partitions[0].ErrorCode != kerr.UnknownTopicOrPartition.Code {
			t.Errorf("allowed %d: the answer is %+v", test.allowance, got)
		}
		shares := newShareFetch(orders, "x", int32(i))
		shares.MaxRecords, shares.MaxBytes, shares.ShareAcquireMode = 500, 1<<20, 0
		shared := ask[*kmsg.ShareFetchResponse](p, 2, shares)
		if spent := m.takeSpent(); shared.ErrorCode != 0 || !slices.Equal(spent, []int64{test.shared * size}) || shared.ThrottleMillis != 1 {
			t.Errorf("allowed %d: a share group's member has spent %d, want %d batches of %d; error %d, throttled %d ms",
				test.allowance, spent, test.shared, size, shared.ErrorCode, shared.ThrottleMillis)
		}
	}
}
