package e2e

import (
	"maps"
	"slices"
	"time"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// settleTime bounds how long a group takes to become stable: a session, a rebalance, and a slow
// machine.
const settleTime = until.Limit

// settle waits until the group is stable with the expected members, and they own the partitions
// evenly.
func (c *crew) settle() {
	c.t.Helper()
	deadline := time.Now().Add(settleTime)
	for {
		state, members, err := c.state()
		if err == nil && state == "Stable" && members == len(c.members) && c.even() {
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("not within %v: the group is %s with %d of %d members (%v), they own %v", settleTime, state, members, len(c.members), err, c.owned())
		}
		pause(c.t.Context(), 20*time.Millisecond)
	}
}

// state returns the state of the group, and how many members it has; or why it cannot be described now.
func (c *crew) state() (state string, members int, err error) {
	c.t.Helper()
	if c.byServer {
		described, err := c.admin.DescribeConsumerGroups(c.t.Context(), crewGroup)
		if err != nil {
			c.t.Fatal(err)
		}
		group := described[crewGroup]
		return group.State, len(group.Members), group.Err
	}
	described, err := c.admin.DescribeGroups(c.t.Context(), crewGroup)
	if err != nil {
		c.t.Fatal(err)
	}
	group := described[crewGroup]
	return group.State, len(group.Members), group.Err
}

// even reports whether each partition has one owner, and all members own about as many.
func (c *crew) even() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	count := map[*crewMember]int{}
	for _, owners := range c.claims {
		for owner := range owners {
			if !owner.away {
				count[owner]++
			}
		}
	}
	all := 0
	for _, m := range c.members {
		if n := count[m]; n < c.partitions/len(c.members) || n > (c.partitions+len(c.members)-1)/len(c.members) {
			return false
		}
		all += count[m]
	}
	return all == c.partitions
}

// owned returns the partitions of each member, by its instance id or its name.
func (c *crew) owned() map[string][]int32 {
	c.mu.Lock()
	defer c.mu.Unlock()
	owned := map[string][]int32{}
	for _, partition := range slices.Sorted(maps.Keys(c.claims)) {
		for owner := range c.claims[partition] {
			name := owner.instance
			if name == "" {
				name = owner.name
			}
			owned[name] = append(owned[name], partition)
		}
	}
	return owned
}

// generation returns the generation of all members, which must be the same.
func (c *crew) generation() int32 {
	c.t.Helper()
	_, generation := c.members[0].client.GroupMetadata()
	for _, m := range c.members[1:] {
		if _, its := m.client.GroupMetadata(); its != generation {
			c.t.Errorf("%s is in generation %d, and %s in %d", c.members[0].name, generation, m.name, its)
		}
	}
	return generation
}

// conclude logs the results.
func (c *crew) conclude() {
	c.mu.Lock()
	defer c.mu.Unlock()
	records := 0
	for _, offsets := range c.processed {
		records += len(offsets)
	}
	c.t.Logf("%d members processed %d records; %d times was a partition another's before its owner knew that it was dropped; offsets were looked at %d times",
		c.names, records, c.dropped, c.committed.looks)
	if c.committed.looks == 0 {
		c.t.Error("committed offsets were not looked at")
	}
}
