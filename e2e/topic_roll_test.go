//go:build long

package e2e

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// Consumers of the classic protocol are replaced one by one by those of the consumer protocol, and those by classic ones
// again, with a steady flow of records. The group has members all the time, and the server is killed while it has both. No
// partition has two owners, every record is processed, and none again once that is committed.
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
			session, rebalance := kgo.SessionTimeout(until.Limit), kgo.RebalanceTimeout(until.Limit) // nobody is dropped because the machine is slow
			c := newCrew(s, 12, classic, session, rebalance)
			for range 3 {
				c.add()
			}
			c.settle()
			c.options = []kgo.Opt{kgo.ServerSideBalancer(), session, rebalance}
			c.byServer = true
			c.roll(c.restartServer, func() {})
			c.options = []kgo.Opt{classic, session, rebalance}
			c.roll(func() {}, func() { c.byServer = false })
			c.finish()
			if c.again > 0 {
				t.Errorf("%d records were processed again after that was committed", c.again)
			}
		})
	}
}

// roll replaces the three members by new ones, and calls mixed while the group has members of both kinds, and last before the
// last old one leaves. Each new one has partitions before
// the next old one leaves, and all process records.
func (c *crew) roll(mixed, last func()) {
	c.t.Helper()
	for i := range 3 {
		c.add()
		c.settle()
		c.processMore()
		switch i {
		case 1:
			mixed()
			c.settle()
			c.processMore()
		case 2:
			last()
		}
		oldest := c.members[0]
		c.members = c.members[1:]
		oldest.stop()
		c.settle()
		c.processMore()
	}
}
