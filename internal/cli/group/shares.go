package group

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/internal/cli/brokers"
)

// typeShare is the protocol type of share groups.
const typeShare = "share"

// asGroup returns a share group as one of the classic protocol.
func asGroup(group kadm.DescribedShareGroup) kadm.DescribedGroup {
	as := kadm.DescribedGroup{
		Group: group.GroupID, Coordinator: group.Coordinator, State: group.GroupState, ProtocolType: typeShare, Protocol: group.Assignor,
	}
	for i := range group.Members {
		m := &group.Members[i]
		as.Members = append(as.Members, kadm.DescribedGroupMember{MemberID: m.MemberID, ClientID: m.ClientID, ClientHost: m.ClientHost})
	}
	return as
}

// lagOfShares returns how far a share group is: it has committed the offsets before which all records are done. Otherwise
// is the answer if it is no share group.
func lagOfShares(ctx context.Context, c *brokers.Client, name string, otherwise kadm.DescribedGroupLag) (kadm.DescribedGroupLag, error) {
	shared, err := c.Admin.DescribeShareGroups(ctx, name)
	group := shared[name]
	if err != nil || group.Err != nil || group.GroupID == "" {
		return otherwise, nil //nolint:nilerr // a broker without share groups has no such groups
	}
	as := asGroup(group)
	lag := kadm.DescribedGroupLag{
		Group: name, Coordinator: as.Coordinator, State: as.State, ProtocolType: as.ProtocolType, Protocol: as.Protocol, Members: as.Members,
	}
	starts, err := startsOf(ctx, c, name)
	if err == nil {
		lag.Lag, err = lagOfOffsets(ctx, c, starts)
	}
	return lag, err
}

// startsOf returns the offsets before which all records are done in a share group.
func startsOf(ctx context.Context, c *brokers.Client, name string) (kadm.OffsetResponses, error) {
	described, err := c.Admin.DescribeShareGroupOffsets(ctx, name)
	if err == nil {
		err = described[name].Err
	}
	starts := kadm.OffsetResponses{}
	described[name].Offsets.Each(func(o kadm.ShareOffset) {
		if o.Err == nil && o.StartOffset >= 0 {
			starts.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: o.Topic, Partition: o.Partition, At: o.StartOffset, LeaderEpoch: -1}})
		}
	})
	return starts, err
}

// resetShares moves a share group without members.
func resetShares(ctx context.Context, c *brokers.Client, name string, offsets kadm.Offsets) error {
	altered, err := c.Admin.AlterShareGroupOffsets(ctx, name, offsets)
	if err == nil {
		err = altered.Error()
	}
	if errors.Is(err, kerr.NonEmptyGroup) {
		return fmt.Errorf("group %q has a member now: stop it first", name)
	}
	return err
}

// forgetShares makes a share group without members forget what it knows of the records of a topic.
func forgetShares(ctx context.Context, c *brokers.Client, name, topic string) error {
	deleted, err := c.Admin.DeleteShareGroupOffsets(ctx, name, topic)
	if err == nil {
		err = deleted[topic]
	}
	switch {
	case errors.Is(err, kerr.GroupIDNotFound):
		return fmt.Errorf(`there is no share group %q; "sluice group list" shows those there are`, name)
	case errors.Is(err, kerr.NonEmptyGroup):
		return fmt.Errorf("group %q has members: stop them first", name)
	case errors.Is(err, kerr.UnknownTopicOrPartition):
		return fmt.Errorf("group %q knows nothing of the topic %q", name, topic)
	}
	return err
}
