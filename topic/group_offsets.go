package topic

import (
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"
)

// CommittedOffset is how far a group has read a partition.
type CommittedOffset struct {
	// Offset is that of the next record to read; Epoch the leader epoch of the
	// last one that was, -1 if unknown.
	Offset int64
	Epoch  int32
	// Metadata is a text of the member's own.
	Metadata string
	// At is when it was committed, to the millisecond.
	At time.Time
	// Expires is when it is forgotten, if the commit said so; zero: as
	// GroupsConfig.OffsetRetention says.
	Expires time.Time
}

// OffsetCommit is one offset of a commit.
type OffsetCommit struct {
	Topic     string
	Partition int32
	Offset    int64
	Epoch     int32
	Metadata  string
}

// CommitRequest commits offsets. A member names itself; who is none (an
// administrator, or a consumer that assigns its partitions itself) sends no
// member and generation -1, which only a group without members takes.
type CommitRequest struct {
	MemberIdentity
	// Retention is how long the offsets are kept; 0: GroupsConfig.OffsetRetention.
	Retention time.Duration
	Offsets   []OffsetCommit
}

// topicOffsets are the offsets of a group in one topic, as they are stored.
type topicOffsets struct {
	revision   uint64
	partitions map[int32]CommittedOffset
}

// offsetChange sets one offset, or removes it.
type offsetChange struct {
	set *CommittedOffset
	// onlyOf removes the offset of that commit, and none that came after it.
	onlyOf time.Time
}

// with returns the partitions after changes.
func (t topicOffsets) with(changes map[int32]offsetChange) map[int32]CommittedOffset {
	after := maps.Clone(t.partitions)
	if after == nil {
		after = map[int32]CommittedOffset{}
	}
	for partition, change := range changes {
		switch {
		case change.set != nil:
			after[partition] = *change.set
		case change.onlyOf.IsZero() || change.onlyOf.Equal(after[partition].At):
			delete(after, partition)
		}
	}
	return after
}

// mayCommit says whether the group takes a commit from that member.
func (g *group) mayCommit(now time.Time, r MemberIdentity) error {
	if r.Generation < 0 && g.state == GroupEmpty {
		return nil
	}
	m, err := g.checkGeneration(r)
	if err != nil {
		return err
	}
	m.touch(now)
	if g.state == GroupCompletingRebalance {
		return ErrRebalanceInProgress
	}
	return nil
}

// committed returns what a commit makes of an offset.
func (r CommitRequest) committed(now time.Time, o OffsetCommit, config GroupsConfig) (*CommittedOffset, error) {
	switch {
	case len(o.Metadata) > config.OffsetMetadataBytes:
		return nil, fmt.Errorf("%w: %d bytes; want at most %d", ErrOffsetMetadataTooLarge, len(o.Metadata), config.OffsetMetadataBytes)
	case !utf8.ValidString(o.Metadata):
		return nil, fmt.Errorf("%w: the metadata of an offset is not UTF-8", ErrInvalidGroupRequest)
	case o.Topic == "" || len(o.Topic) > maxInstanceName || o.Partition < 0:
		return nil, fmt.Errorf("%w: partition %d of topic %q", ErrInvalidGroupRequest, o.Partition, o.Topic)
	}
	now = now.Truncate(time.Millisecond)
	committed := &CommittedOffset{Offset: o.Offset, Epoch: max(o.Epoch, -1), Metadata: o.Metadata, At: now}
	if r.Retention > 0 {
		committed.Expires = now.Add(r.Retention.Truncate(time.Millisecond))
	}
	return committed, nil
}

// expired returns the offsets whose time is up: of a group without members,
// when they and the group's last member are that long gone; of one with
// members, when they are of a topic that nobody reads any more.
func (g *group) expired(now time.Time, offsets map[string]topicOffsets) map[string]map[int32]offsetChange {
	expired := map[string]map[int32]offsetChange{}
	subscribed, known := g.subscribed()
	if g.state == GroupDead || !known {
		return expired
	}
	for topic, in := range offsets {
		if subscribed[topic] {
			continue
		}
		for partition, o := range in.partitions {
			if g.ends(o).After(now) {
				continue
			}
			if expired[topic] == nil {
				expired[topic] = map[int32]offsetChange{}
			}
			expired[topic][partition] = offsetChange{onlyOf: o.At}
		}
	}
	return expired
}

// ends returns when an offset is forgotten.
func (g *group) ends(o CommittedOffset) time.Time {
	if !o.Expires.IsZero() {
		return o.Expires
	}
	since := o.At
	if g.state == GroupEmpty && g.emptySince.After(since) {
		since = g.emptySince
	}
	return since.Add(g.config.OffsetRetention)
}

// sortedTopics returns the topics of a map, by name.
func sortedTopics[V any](topics map[string]V) []string { return slices.Sorted(maps.Keys(topics)) }
