package e2e

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Eight consumers of a group share 24 partitions with a steady flow of records. Some are cut off,
// some stop, some are held for longer than their session and then resume, some join, and once the
// server is killed. Every record is processed, no partition has two owners in a generation,
// committed offsets never go back, and every rebalance ends.
func TestTopicGroup(t *testing.T) {
	t.Parallel()
	rounds := 2
	if long() {
		rounds = 10
	}
	kinds := map[string]kgo.Opt{
		"cooperative": kgo.Balancers(kgo.CooperativeStickyBalancer()), "eager": kgo.Balancers(kgo.RoundRobinBalancer()),
		byServer: kgo.ServerSideBalancer(),
	}
	for name, kind := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.env = []string{
				"SLUICE_TOPIC_GROUP_SESSION_MIN=1s",
				"SLUICE_TOPIC_CONSUMER_SESSION=" + crewSession.String(), "SLUICE_TOPIC_CONSUMER_HEARTBEAT=200ms",
			}
			s.start()
			c := newCrew(s, 24, kind, kgo.SessionTimeout(crewSession))
			c.byServer = name == byServer
			for range 8 {
				c.add()
			}
			c.settle()
			for round := range rounds {
				c.trouble()
				if round == rounds/2 {
					c.add()
					s.kill()
					s.start()
				}
				for len(c.members) < 8 {
					c.add()
				}
				c.settle()
			}
			c.finish()
		})
	}
}

// byServer is the kind of group whose partitions the server assigns.
const byServer = "by the server"

// trouble holds, cuts off and stops members, and releases the held one when the group has settled
// without it. The hold comes first, while nobody joins: a client whose join is refused, because the
// group has dropped the member in the meantime, joins again and goes on from its own positions.
func (c *crew) trouble() {
	c.t.Helper()
	held := c.take()
	release := held.hold()
	for range 1 + rand.N(2) {
		c.take().kill()
	}
	for range rand.N(3) {
		c.take().stop()
	}
	c.settle()
	release()
	c.members = append(c.members, held)
}

// take removes a member from the expected ones.
func (c *crew) take() *crewMember {
	i := rand.N(len(c.members))
	m := c.members[i]
	c.members = append(c.members[:i:i], c.members[i+1:]...)
	return m
}

// Static members that are cut off, or closed, and return under their names get back their
// partitions, even if the server was killed in between, and no other member notices.
func TestTopicGroupStaticMembers(t *testing.T) {
	t.Parallel()
	s := newServer(t)
	s.start()
	// A returning leader requests a rebalance unless it would assign the same; a range assignment
	// depends only on the names of the members.
	c := newCrew(s, 6, kgo.Balancers(kgo.RangeBalancer()), kgo.SessionTimeout(until.Limit), tellIfFailed(t))
	for i := range 3 {
		c.addStatic(fmt.Sprint("till-", i))
	}
	c.settle()
	owned, generation := c.owned(), c.generation()
	comeBack := func(what string) {
		t.Helper()
		c.settle()
		c.processMore()
		if got := c.owned(); fmt.Sprint(got) != fmt.Sprint(owned) {
			t.Errorf("%s: members have %v, and had %v", what, got, owned)
		}
		if got := c.generation(); got != generation {
			t.Errorf("%s: the group is in generation %d, and was in %d", what, got, generation)
		}
	}
	comeBack("nothing has happened")
	cut := c.members[0]
	cut.kill()
	c.members = c.members[1:]
	c.addStatic(cut.instance)
	comeBack("a member was cut off")
	closed := c.members[0]
	closed.stop()
	c.members = c.members[1:]
	c.addStatic(closed.instance)
	comeBack("a member was closed")
	c.restartServer()
	comeBack("the server was killed")
	gone := c.members[0]
	gone.kill()
	c.members = c.members[1:]
	c.restartServer()
	c.addStatic(gone.instance)
	comeBack("a member was cut off, and the server killed")
	c.finish()
}

// tellIfFailed keeps the clients' logs of their groups, and prints their end if the test fails:
// only a client knows why its member has joined again.
func tellIfFailed(t *testing.T) kgo.Opt {
	var log bytes.Buffer
	var mu sync.Mutex
	write := func(b []byte) (int, error) {
		mu.Lock()
		defer mu.Unlock()
		return log.Write(b)
	}
	t.Cleanup(func() {
		mu.Lock()
		defer mu.Unlock()
		if t.Failed() {
			t.Logf("the clients' log:\n%s", tail(log.Bytes(), 40_000))
		}
	})
	return kgo.WithLogger(kgo.BasicLogger(writerFunc(write), kgo.LogLevelInfo, func() string {
		return time.Now().Format("15:04:05.000 ")
	}))
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// restartServer kills the server and restarts it. The members reconnect at once: a client that
// cannot connect would consider itself dropped and join again, which requests a rebalance.
func (c *crew) restartServer() {
	c.t.Helper()
	var release []func()
	for _, m := range c.members {
		release = append(release, m.wire.hold())
	}
	c.server.kill()
	c.server.start()
	for _, f := range release {
		f()
	}
}

// processMore waits until records that arrive from now on are processed.
func (c *crew) processMore() {
	c.t.Helper()
	for partition := range c.partitions {
		before := c.processedOf(int32(partition))
		until.True(c.t, fmt.Sprintf("more of partition %d is processed", partition), func() bool {
			return c.processedOf(int32(partition)) > before
		})
	}
}

// finish stops the producer; when the group has settled for the last time, all records are
// processed and committed.
func (c *crew) finish() {
	c.t.Helper()
	c.stopProducing()
	if err := c.producer.Flush(context.Background()); err != nil {
		c.t.Fatal(err)
	}
	ends := c.server.topicEnds(crewTopic)
	for partition, end := range ends {
		if sent := c.sent[partition]; sent != end {
			c.t.Errorf("partition %d ends at %d, and %d were sent", partition, end, sent)
		}
		until.True(c.t, fmt.Sprintf("all %d of partition %d are processed and committed", end, partition), func() bool {
			return c.processedOf(partition) == end && c.committed.floor(crewTopic, partition) == end
		})
	}
	for _, m := range c.members {
		m.stop()
	}
	c.endWatch()
	c.conclude()
}
