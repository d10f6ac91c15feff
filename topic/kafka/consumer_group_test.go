package kafka

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

// newConsumerJoin returns the first heartbeat of a member.
func newConsumerJoin(name, member string, topics ...string) *kmsg.ConsumerGroupHeartbeatRequest {
	r := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	r.Group, r.MemberID, r.RebalanceTimeoutMillis = name, member, 60_000
	r.SubscribedTopicNames, r.Topics = topics, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	return r
}

// The life of a member of the consumer protocol, in each version.
func TestConsumerGroupInEveryVersion(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 2)
	orders, err := b.Topic("orders")
	if err != nil {
		t.Fatal(err)
	}
	for version := range int16(2) {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			p := dial(t, s)
			name, member := fmt.Sprint("g", version), ""
			if version > 0 {
				refused := ask[*kmsg.ConsumerGroupHeartbeatResponse](p, version, newConsumerJoin(name, "", "orders"))
				wantCode(t, "join without a member id", refused.ErrorCode, kerr.InvalidRequest)
				member = "m"
			}
			join := newConsumerJoin(name, member, "orders")
			join.RackID, join.ServerAssignor = kmsg.StringPtr("rack"), kmsg.StringPtr("range")
			joined := ask[*kmsg.ConsumerGroupHeartbeatResponse](p, version, join)
			wantCode(t, "join", joined.ErrorCode, nil)
			if *joined.MemberID == "" || joined.MemberEpoch != 1 || joined.HeartbeatIntervalMillis != 5000 ||
				len(joined.Assignment.Topics) != 1 || joined.Assignment.Topics[0].TopicID != orders.ID() ||
				!slices.Equal(joined.Assignment.Topics[0].Partitions, []int32{0, 1}) {
				t.Fatalf("joined %+v", joined)
			}
			member = *joined.MemberID

			beat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
			beat.Group, beat.MemberID, beat.MemberEpoch = name, member, 1
			beaten := ask[*kmsg.ConsumerGroupHeartbeatResponse](p, version, beat)
			if beaten.ErrorCode != 0 || beaten.MemberEpoch != 1 || beaten.Assignment != nil {
				t.Fatalf("a heartbeat without news: %+v", beaten)
			}
			beat.MemberEpoch = 2
			wantCode(t, "another epoch", ask[*kmsg.ConsumerGroupHeartbeatResponse](p, version, beat).ErrorCode, kerr.FencedMemberEpoch)
			wantConsumers(t, p, version, name, member)
			wantEpochInOffsets(t, p, name, member)

			beat.MemberEpoch = group.LeaveEpoch
			left := ask[*kmsg.ConsumerGroupHeartbeatResponse](p, version, beat)
			if left.ErrorCode != 0 || left.MemberEpoch != -1 {
				t.Fatalf("left: %+v", left)
			}
			beat.MemberEpoch = 1
			wantCode(t, "after it has left", ask[*kmsg.ConsumerGroupHeartbeatResponse](p, version, beat).ErrorCode, kerr.UnknownMemberID)
			remove := kmsg.NewPtrDeleteGroupsRequest()
			remove.Groups = []string{name}
			wantCode(t, "delete", ask[*kmsg.DeleteGroupsResponse](p, 2, remove).Groups[0].ErrorCode, nil)
		})
	}
}

// wantEpochInOffsets checks that a member in epoch 1 may commit and fetch offsets in that epoch only.
func wantEpochInOffsets(t *testing.T, p *peer, name, member string) {
	t.Helper()
	commit := func(version int16, epoch int32) int16 {
		r := commitOf(name, &kmsg.JoinGroupResponse{MemberID: member, Generation: epoch}, "orders", 0, 7)
		return ask[*kmsg.OffsetCommitResponse](p, version, r).Topics[0].Partitions[0].ErrorCode
	}
	wantCode(t, "commit", commit(9, 1), nil)
	wantCode(t, "commit of another epoch", commit(9, 3), kerr.StaleMemberEpoch)
	wantCode(t, "the same by an old client", commit(8, 3), kerr.IllegalGeneration)

	fetch := kmsg.NewPtrOffsetFetchRequest()
	of := kmsg.NewOffsetFetchRequestGroup()
	of.Group, of.MemberID, of.MemberEpoch = name, &member, 1
	fetch.Groups = append(fetch.Groups, of)
	wantCode(t, "fetch offsets", ask[*kmsg.OffsetFetchResponse](p, 9, fetch).Groups[0].ErrorCode, nil)
	fetch.Groups[0].MemberEpoch = 2
	wantCode(t, "fetch offsets in another epoch", ask[*kmsg.OffsetFetchResponse](p, 9, fetch).Groups[0].ErrorCode, kerr.StaleMemberEpoch)
}

// wantConsumers checks what lists and descriptions tell of a group with one member.
func wantConsumers(t *testing.T, p *peer, version int16, name, member string) {
	t.Helper()
	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Groups = []string{name, "none"}
	described := ask[*kmsg.ConsumerGroupDescribeResponse](p, version, describe)
	d := described.Groups[0]
	wantCode(t, "describe", d.ErrorCode, nil)
	wantCode(t, "describe a group that does not exist", described.Groups[1].ErrorCode, kerr.GroupIDNotFound)
	if d.State != "Stable" || d.Epoch != 1 || d.AssignmentEpoch != 1 || d.AssignorName != "range" || len(d.Members) != 1 {
		t.Fatalf("described %+v", d)
	}
	m := d.Members[0]
	if m.MemberID != member || m.MemberEpoch != 1 || *m.RackID != "rack" || !slices.Equal(m.SubscribedTopics, []string{"orders"}) {
		t.Errorf("described %+v", m)
	}
	for what, assigned := range map[string]kmsg.Assignment{"assigned": m.Assignment, "target": m.TargetAssignment} {
		if len(assigned.TopicPartitions) != 1 || assigned.TopicPartitions[0].Topic != "orders" || len(assigned.TopicPartitions[0].Partitions) != 2 {
			t.Errorf("%s: %+v", what, assigned)
		}
	}
	classic := kmsg.NewPtrDescribeGroupsRequest()
	classic.Groups = []string{name}
	wantCode(t, "describe as a classic group", ask[*kmsg.DescribeGroupsResponse](p, 6, classic).Groups[0].ErrorCode, kerr.GroupIDNotFound)
	list := kmsg.NewPtrListGroupsRequest()
	list.TypesFilter = []string{"consumer"}
	listed := ask[*kmsg.ListGroupsResponse](p, 5, list)
	if !slices.ContainsFunc(listed.Groups, func(g kmsg.ListGroupsResponseGroup) bool { return g.Group == name && g.GroupType == "consumer" }) {
		t.Errorf("listed %+v", listed.Groups)
	}
}

func TestConsumerGroupHeartbeatIsRefused(t *testing.T) {
	s, b := serve(t, topic.Config{Groups: topic.GroupsConfig{MinSession: time.Second}})
	create(t, b, "orders", 1)
	p := dial(t, s)
	joinAlone(p, 9, "classic")
	empty := ""
	tests := []struct {
		name   string
		change func(r *kmsg.ConsumerGroupHeartbeatRequest)
		want   *kerr.Error
	}{
		{"no group", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "" }, kerr.InvalidGroupID},
		{"an empty instance id", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.InstanceID = &empty }, kerr.InvalidRequest},
		{"no owned partitions", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Topics = nil }, kerr.InvalidRequest},
		{"no rebalance timeout", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.RebalanceTimeoutMillis = -1 }, kerr.InvalidRequest},
		{"an unknown assignor", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.ServerAssignor = kmsg.StringPtr("mine") }, kerr.UnsupportedAssignor},
		{"a pattern that is none", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.SubscribedTopicRegex = kmsg.StringPtr("(") }, kerr.InvalidRegularExpression},
		{"a classic group", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.Group = "classic" }, kerr.GroupIDNotFound},
		{"a member that nobody knows", func(r *kmsg.ConsumerGroupHeartbeatRequest) { r.MemberEpoch = 5 }, kerr.UnknownMemberID},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			r := newConsumerJoin("g", "m", "orders")
			test.change(r)
			answer := ask[*kmsg.ConsumerGroupHeartbeatResponse](p, 1, r)
			wantCode(t, test.name, answer.ErrorCode, test.want)
			if answer.ErrorMessage == nil {
				t.Error("the answer does not say why")
			}
		})
	}
}

// A classic member joins a group of the consumer protocol, and is described there by its protocol.
func TestClassicMemberJoinsConsumers(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 2)
	p := dial(t, s)
	wantCode(t, "join", ask[*kmsg.ConsumerGroupHeartbeatResponse](p, 1, newConsumerJoin("g", "m", "orders")).ErrorCode, nil)
	join := newJoin("g", "")
	join.Protocols[0].Metadata = []byte("mine")
	wantCode(t, "a join that cannot be read", ask[*kmsg.JoinGroupResponse](p, 9, join).ErrorCode, kerr.InconsistentGroupProtocol)
	metadata := kmsg.NewConsumerMemberMetadata()
	metadata.Topics = []string{"orders"}
	join.Protocols[0].Metadata = metadata.AppendTo(nil)
	given := ask[*kmsg.JoinGroupResponse](p, 9, join)
	wantCode(t, "first join", given.ErrorCode, kerr.MemberIDRequired)
	join.MemberID = given.MemberID
	joined := ask[*kmsg.JoinGroupResponse](p, 9, join)
	wantCode(t, "join", joined.ErrorCode, nil)
	if joined.Generation != 2 || joined.LeaderID != "" || len(joined.Members) != 0 || *joined.Protocol != "range" {
		t.Errorf("joined %+v", joined)
	}
	var assigned kmsg.ConsumerMemberAssignment
	if err := assigned.ReadFrom(syncAlone(p, 5, "g", joined).MemberAssignment); err != nil || len(assigned.Topics) != 0 {
		t.Errorf("before m has revoked, the classic member has %+v, %v", assigned, err)
	}
	describe := kmsg.NewPtrConsumerGroupDescribeRequest()
	describe.Groups = []string{"g"}
	kinds := map[string]int8{}
	for _, m := range ask[*kmsg.ConsumerGroupDescribeResponse](p, 1, describe).Groups[0].Members {
		kinds[m.MemberID] = m.MemberType
	}
	if kinds["m"] != 1 || kinds[joined.MemberID] != 0 || len(kinds) != 2 {
		t.Errorf("kinds of members: %v", kinds)
	}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID, beat.Generation = "g", joined.MemberID, joined.Generation
	wantCode(t, "heartbeat", ask[*kmsg.HeartbeatResponse](p, 4, beat).ErrorCode, nil)
}
