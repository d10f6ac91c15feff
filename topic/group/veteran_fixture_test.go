package group_test

import (
	"errors"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/group/assign"
)

// veteran is a client of the classic protocol, controlled by the test, which subscribes, owns and assigns as
// Kafka's consumers do. A cooperative one gives up what it is not assigned any more, and joins again; an eager
// one gives up everything before it joins.
type veteran struct {
	t      testing.TB
	groups *group.Groups
	topics *someTopics
	group.MemberIdentity
	name    string
	eager   bool
	reading []string // the topics that it subscribes to

	reads   assign.Partitions
	again   bool // it has to join
	joining *group.Awaited[group.JoinResult]
	syncing *group.Awaited[group.SyncResult]
	// seen is what a leader knew of the topics when it assigned; empty for others.
	seen string
	// lost counts how often the group has dropped it.
	lost int
}

func newVeteran(t testing.TB, groups *group.Groups, topics *someTopics, name string, eager bool, reading ...string) *veteran {
	return &veteran{
		t: t, groups: groups, topics: topics, name: name, eager: eager, reading: reading, again: true,
		MemberIdentity: group.MemberIdentity{Group: "g", Generation: -1},
	}
}

func (v *veteran) owns() (string, assign.Partitions) { return v.name, v.reads }
func (v *veteran) subscribed() []string              { return v.reading }
func (v *veteran) moveTo(groups *group.Groups)       { v.groups = groups }

func (v *veteran) quit() {
	_, _ = v.groups.Leave("g", []group.MemberIdentity{v.MemberIdentity}) // as good as a member that is killed
}

func (v *veteran) turn(busy, lost bool) {
	switch {
	case v.joining != nil:
		v.joined(lost)
	case v.syncing != nil:
		v.synced(lost)
	case !v.again:
		v.failed(v.groups.Heartbeat(v.MemberIdentity))
		v.again = v.again || v.seen != "" && v.seen != v.topics.String() // leaders follow the topics
	}
	if v.again && !busy {
		v.join()
	}
}

// failed does what a client does after an error, and reports whether there was one.
func (v *veteran) failed(err error) bool {
	switch {
	case err == nil:
		return false
	case errors.Is(err, group.ErrUnknownMember), errors.Is(err, group.ErrIllegalGeneration), errors.Is(err, group.ErrFencedInstance):
		if errors.Is(err, group.ErrUnknownMember) {
			v.Member = ""
		}
		v.Generation, v.reads, v.again = -1, nil, true
		v.lost++
	case errors.Is(err, group.ErrRebalanceInProgress), errors.Is(err, group.ErrMemberIDRequired), v.joining != nil, v.syncing != nil:
		v.again = true
	}
	return true
}

func (v *veteran) join() {
	v.again = false
	if v.eager {
		v.reads = nil
	}
	metadata := kmsg.NewConsumerMemberMetadata()
	metadata.Version, metadata.Topics = 1, v.reading
	for _, name := range v.topics.Names() {
		if of, _ := v.topics.Lookup(name); len(v.reads[of.ID]) > 0 {
			metadata.OwnedPartitions = append(metadata.OwnedPartitions, kmsg.ConsumerMemberMetadataOwnedPartition{Topic: name, Partitions: v.reads[of.ID]})
		}
	}
	protocol := "cooperative-sticky"
	if v.eager {
		protocol = "range"
	}
	v.joining = v.groups.Join(group.JoinRequest{
		Group: "g", Member: v.Member, Instance: v.Instance, Client: v.name, Host: "/here", Session: 45 * time.Second, Rebalance: time.Minute,
		ProtocolType: "consumer", Protocols: []group.Protocol{{Name: protocol, Metadata: metadata.AppendTo(nil)}}, RequireMember: true,
	})
	v.joined(false)
}

func (v *veteran) joined(lost bool) {
	select {
	case <-v.joining.Done():
	default:
		return
	}
	result, err := v.joining.Wait(v.t.Context())
	if errors.Is(err, group.ErrMemberIDRequired) {
		v.Member = result.Member
	}
	bad := v.failed(err)
	v.joining = nil
	if v.again = v.again || lost; bad || lost {
		return
	}
	v.Member, v.Generation = result.Member, result.Generation
	v.seen = ""
	request := group.SyncRequest{MemberIdentity: v.MemberIdentity, ProtocolType: "consumer", Protocol: result.Protocol}
	if result.Leader == v.Member {
		request.Assignments = v.assign(result.Members)
	}
	v.syncing = v.groups.Sync(request)
	v.synced(false)
}

func (v *veteran) synced(lost bool) {
	select {
	case <-v.syncing.Done():
	default:
		return
	}
	result, err := v.syncing.Wait(v.t.Context())
	bad := v.failed(err)
	v.syncing = nil
	if v.again = v.again || lost; bad || lost {
		return
	}
	var read kmsg.ConsumerMemberAssignment
	if err := read.ReadFrom(result.Assignment); err != nil {
		v.t.Errorf("the assignment of %s: %v", v.name, err)
	}
	lists := map[topic.ID][]int32{}
	for _, of := range read.Topics {
		found, _ := v.topics.Lookup(of.Topic)
		lists[found.ID] = of.Partitions
	}
	before := v.reads
	v.reads = assign.Sorted(lists)
	v.again = len(before.Without(v.reads)) > 0 // others wait for it
}

// assign divides the partitions as a leader. No cooperative member gets what another one says that it owns.
func (v *veteran) assign(joined []group.JoinedMember) map[string][]byte {
	v.seen = v.topics.String()
	members := make([]assign.Member, len(joined))
	owned := assign.Partitions{}
	for i, m := range joined {
		var metadata kmsg.ConsumerMemberMetadata
		if err := metadata.ReadFrom(m.Metadata); err != nil {
			v.t.Errorf("the subscription of %s: %v", m.Member, err)
		}
		had := map[topic.ID][]int32{}
		for _, of := range metadata.OwnedPartitions {
			found, _ := v.topics.Lookup(of.Topic)
			had[found.ID] = of.Partitions
		}
		members[i].Had = assign.Sorted(had).Without(owned)
		owned = owned.And(members[i].Had)
		for _, name := range metadata.Topics {
			if of, there := v.topics.Lookup(name); there {
				members[i].Topics = append(members[i].Topics, of)
			}
		}
	}
	assignments := map[string][]byte{}
	for i, share := range assign.Uniform(members) {
		share = share.Without(owned.Without(members[i].Had))
		var written kmsg.ConsumerMemberAssignment
		for _, name := range v.topics.Names() {
			if of, _ := v.topics.Lookup(name); len(share[of.ID]) > 0 {
				written.Topics = append(written.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: name, Partitions: share[of.ID]})
			}
		}
		assignments[joined[i].Member] = written.AppendTo(nil)
	}
	return assignments
}
