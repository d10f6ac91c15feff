package group

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group/assign"
)

// The protocol of consumers that is embedded in the classic one: what members subscribe to and own, and what they
// are assigned, is in bytes that only members read, unless the group has members of both protocols.

// subscription reads the topics from a consumer's metadata; ok is false for other
// metadata.
func subscription(metadata []byte) (topics []string, ok bool) {
	var consumer kmsg.ConsumerMemberMetadata
	if consumer.ReadFrom(metadata) != nil {
		return nil, false
	}
	return consumer.Topics, true
}

// readSubscription returns what a classic member subscribes to, and what it owns, from the first protocol that it offers, as
// Kafka does.
func (g *group) readSubscription(protocols []Protocol) (topics []string, owned assign.Partitions, err error) {
	var consumer kmsg.ConsumerMemberMetadata
	if err := consumer.ReadFrom(protocols[0].Metadata); err != nil {
		return nil, nil, fmt.Errorf("the metadata of protocol %q is not a consumer's subscription: %w", protocols[0].Name, err)
	}
	lists := map[string][]int32{}
	for _, of := range consumer.OwnedPartitions {
		lists[of.Topic] = append(lists[of.Topic], of.Partitions...)
	}
	topics = append([]string{}, consumer.Topics...)
	slices.Sort(topics)
	return slices.Compact(topics), g.byIdentity(lists), nil
}

// readAssignment returns the partitions of an assignment that a leader has made. Data of the leader's own would be lost, so it
// is an error.
func (g *group) readAssignment(assignment []byte) (assign.Partitions, error) {
	if len(assignment) == 0 {
		return assign.Partitions{}, nil
	}
	var read kmsg.ConsumerMemberAssignment
	if err := read.ReadFrom(assignment); err != nil {
		return nil, fmt.Errorf("its assignment is not a consumer's: %w", err)
	}
	if len(read.UserData) > 0 {
		return nil, fmt.Errorf("its assignment has %d bytes of data of the members' own assignor", len(read.UserData))
	}
	lists := map[string][]int32{}
	for _, of := range read.Topics {
		lists[of.Topic] = append(lists[of.Topic], of.Partitions...)
	}
	return g.byIdentity(lists), nil
}

// byIdentity returns partitions by the identity of their topic. Topics that do not exist are left out.
func (g *group) byIdentity(lists map[string][]int32) assign.Partitions {
	found := map[topic.ID][]int32{}
	for name, numbers := range lists {
		if of, there := g.topics.Lookup(name); there {
			found[of.ID] = numbers
		}
	}
	return assign.Sorted(found)
}

// writeAssignment returns partitions of topics that members read, as an assignment for a classic member.
func (g *group) writeAssignment(m *consumer, partitions assign.Partitions) []byte {
	var written kmsg.ConsumerMemberAssignment
	var subscribed kmsg.ConsumerMemberMetadata
	if subscribed.ReadFrom(m.classic.protocols[0].Metadata) == nil {
		written.Version = subscribed.Version // which the member reads
	}
	for _, name := range Sorted(g.consumers.subscribed) {
		if of, there := g.topics.Lookup(name); there && len(partitions[of.ID]) > 0 {
			written.Topics = append(written.Topics, kmsg.ConsumerMemberAssignmentTopic{Topic: name, Partitions: partitions[of.ID]})
		}
	}
	return written.AppendTo(nil)
}
