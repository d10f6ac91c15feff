package group

import (
	"context"
	"errors"
	"slices"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/sluice-project/sluice/internal/cli/brokers"
)

// There are requests for groups of the classic protocol, others for those of the consumer protocol
// (KIP-848), and others for share groups (KIP-932). To the commands a group is a group.

// isMissing reports whether the requests for classic groups know no such group.
func isMissing(state string, err error) bool {
	return errors.Is(err, kerr.GroupIDNotFound) || err == nil && state == brokers.GroupDead
}

// describeAll describes groups of either protocol. A group that does not exist has an error, or is dead.
func describeAll(ctx context.Context, c *brokers.Client, names ...string) (kadm.DescribedGroups, error) {
	described, err := c.Admin.DescribeGroups(ctx, names...)
	if err != nil {
		return nil, err
	}
	var missing []string
	for _, group := range described.Sorted() {
		if isMissing(group.State, group.Err) {
			missing = append(missing, group.Group)
		}
	}
	if len(missing) == 0 {
		return described, nil
	}
	consumers, _ := c.Admin.DescribeConsumerGroups(ctx, missing...) // a broker without the consumer protocol has no such groups
	for name, group := range consumers {
		if group.Err == nil {
			described[name] = kadm.DescribedGroup{
				Group: name, Coordinator: group.Coordinator, State: group.State, ProtocolType: "consumer",
				Protocol: group.AssignorName, Members: membersOf(group),
			}
		}
	}
	missing = slices.DeleteFunc(missing, func(name string) bool { return consumers[name].Err == nil && consumers[name].Group != "" })
	if len(missing) == 0 {
		return described, nil
	}
	shared, _ := c.Admin.DescribeShareGroups(ctx, missing...) // nor one without share groups
	for name, group := range shared {
		if group.Err == nil {
			described[name] = asGroup(group)
		}
	}
	return described, nil
}

// membersOf returns the members of a group of the consumer protocol.
func membersOf(group kadm.DescribedConsumerGroup) []kadm.DescribedGroupMember {
	members := make([]kadm.DescribedGroupMember, len(group.Members))
	for i := range group.Members {
		m := &group.Members[i]
		members[i] = kadm.DescribedGroupMember{MemberID: m.MemberID, InstanceID: m.InstanceID, ClientID: m.ClientID, ClientHost: m.ClientHost}
	}
	return members
}

// lagOf returns how far a group of either protocol is. A group that does not exist has an error, or is dead.
func lagOf(ctx context.Context, c *brokers.Client, name string) (kadm.DescribedGroupLag, error) {
	all, err := c.Admin.Lag(ctx, name)
	classic := all[name]
	if err != nil || !isMissing(classic.State, classic.DescribeErr) {
		return classic, err
	}
	consumers, err := c.Admin.DescribeConsumerGroups(ctx, name)
	group := consumers[name]
	if err != nil || group.Err != nil { // there is no such group, or the broker does not have the consumer protocol
		return lagOfShares(ctx, c, name, classic)
	}
	lag := kadm.DescribedGroupLag{
		Group: name, Coordinator: group.Coordinator, State: group.State, ProtocolType: "consumer", Protocol: group.AssignorName,
		Members: membersOf(group),
	}
	committed, err := c.Admin.FetchOffsets(ctx, name)
	if err != nil {
		return lag, err
	}
	owners := map[string]map[int32]*kadm.DescribedGroupMember{}
	for i := range group.Members {
		group.Members[i].Assignment.Each(func(topic string, partition int32) {
			if owners[topic] == nil {
				owners[topic] = map[int32]*kadm.DescribedGroupMember{}
			}
			owners[topic][partition] = &lag.Members[i]
			if _, has := committed.Lookup(topic, partition); !has {
				committed.Add(kadm.OffsetResponse{Offset: kadm.Offset{Topic: topic, Partition: partition, At: -1, LeaderEpoch: -1}})
			}
		})
	}
	lag.Lag, err = lagOfOffsets(ctx, c, committed)
	for topic, partitions := range lag.Lag {
		for partition, in := range partitions {
			in.Member = owners[topic][partition]
			partitions[partition] = in
		}
	}
	return lag, err
}

// lagOfOffsets returns how far offsets are, in partitions that have no member.
func lagOfOffsets(ctx context.Context, c *brokers.Client, committed kadm.OffsetResponses) (kadm.GroupLag, error) {
	topics := committed.Partitions().Topics()
	if len(topics) == 0 {
		return nil, nil
	}
	starts, err := c.Admin.ListStartOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	ends, err := c.Admin.ListEndOffsets(ctx, topics...)
	if err != nil {
		return nil, err
	}
	return kadm.CalculateGroupLagWithStartOffsets(kadm.DescribedGroup{}, committed, starts, ends), nil
}
