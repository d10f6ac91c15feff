package e2e

import (
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Consumers of the classic protocol are replaced one by one by those of the consumer protocol, and those by classic ones
// again, with a steady flow of records. The group has members all the time, and in the middle the server is killed. No
// partition has two owners, every record is processed, and those that the server's end does not touch are processed once.
func TestTopicGroupIsRolled(t *testing.T) {
	t.Parallel()
	kinds := map[string]kgo.Opt{
		"cooperative": kgo.Balancers(kgo.CooperativeStickyBalancer()), "eager": kgo.Balancers(kgo.RangeBalancer()),
	}
	for name, classic := range kinds {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := newServer(t)
			s.env = []string{"SLUICE_TOPIC_CONSUMER_SESSION=" + until.Limit.String(), "SLUICE_TOPIC_CONSUMER_HEARTBEAT=200ms"}
			s.start()
			session := kgo.SessionTimeout(until.Limit) // nobody is dropped because the machine is slow
			c := newCrew(s, 12, classic, session)
			for range 3 {
				c.add()
			}
			c.settle()
			c.options = []kgo.Opt{kgo.ServerSideBalancer(), session}
			c.byServer = true
			c.roll(func() {})
			once := c.again
			s.kill()
			s.start()
			c.settle()
			c.processMore()
			lost := c.again - once
			c.options = []kgo.Opt{classic, session}
			c.roll(func() { c.byServer = false })
			c.finish()
			if again := c.again - lost; again > 0 {
				t.Errorf("%d records were processed again while members were replaced", again)
			}
		})
	}
}

// roll replaces the three members by new ones, and calls last before the last old one leaves. Each new one has partitions before
// the next old one leaves, and all process records.
func (c *crew) roll(last func()) {
	c.t.Helper()
	for i := range 3 {
		c.add()
		c.settle()
		c.processMore()
		if i == 2 {
			last()
		}
		oldest := c.members[0]
		c.members = c.members[1:]
		began := time.Now()
		oldest.stop()
		c.settle()
		c.t.Logf("%s has left, and the others have its partitions after %v", oldest.name, time.Since(began).Round(time.Millisecond))
		c.processMore()
	}
}
