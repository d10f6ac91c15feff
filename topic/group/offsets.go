package group

import (
	"fmt"
	"maps"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/sluice-project/sluice/topic"
)

// CommittedOffset is a group's committed position in a partition.
type CommittedOffset struct {
	// Offset is the offset of the next record to read; Epoch is the leader epoch of
	// the last record read, -1 if unknown.
	Offset int64
	Epoch  int32
	// Metadata is the member's own text.
	Metadata string
	// At is the time of the commit, to the millisecond.
	At time.Time
	// Expires is the expiry that the commit set; zero: GroupsConfig.OffsetRetention
	// applies.
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

// CommitRequest commits offsets. A member gives its identity; a client that is not a
// member (an administrator, or a consumer that assigns its partitions itself) gives no
// member and generation -1, which only a group without members accepts.
type CommitRequest struct {
	MemberIdentity
	// Retention is how long the offsets are kept; 0: GroupsConfig.OffsetRetention.
	Retention time.Duration
	Offsets   []OffsetCommit
}

// topicOffsets holds a group's offsets in one topic, as stored.
type topicOffsets struct {
	revision   uint64
	partitions map[int32]CommittedOffset
}

// offsetChange sets one offset, or removes it.
type offsetChange struct {
	set *CommittedOffset
	// onlyOf limits a removal to the offset of the commit at that time.
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

// mayCommit returns an error if the group does not accept a commit from that member.
func (g *group) mayCommit(now time.Time, r MemberIdentity) error {
	if r.Generation < 0 && g.state == Empty {
		return nil
	}
	if g.isShare() {
		return fmt.Errorf("%w: its members acknowledge records, and commit no offsets", ErrOtherProtocol)
	}
	if g.consumers != nil {
		err := g.consumers.checkEpoch(r)
		if err == nil {
			g.commits(now, r.Member)
		}
		return err
	}
	m, err := g.checkGeneration(r)
	if err != nil {
		return err
	}
	m.touch(now)
	if g.state == CompletingRebalance {
		return ErrRebalanceInProgress
	}
	return nil
}

// committed returns the offset as committed, or why it cannot be committed.
func (r CommitRequest) committed(now time.Time, o OffsetCommit, config topic.GroupsConfig) (*CommittedOffset, error) {
	if err := CheckMetadata(o.Metadata, config.OffsetMetadataBytes); err != nil {
		return nil, err
	}
	if o.Topic == "" || len(o.Topic) > maxInstanceName || o.Partition < 0 {
		return nil, fmt.Errorf("%w: partition %d of topic %q", ErrInvalidGroupRequest, o.Partition, o.Topic)
	}
	now = now.Truncate(time.Millisecond)
	committed := &CommittedOffset{Offset: o.Offset, Epoch: max(o.Epoch, -1), Metadata: o.Metadata, At: now}
	if r.Retention > 0 {
		committed.Expires = now.Add(r.Retention.Truncate(time.Millisecond))
	}
	return committed, nil
}

// CheckMetadata returns an error if the text of an offset cannot be stored.
func CheckMetadata(text string, most int) error {
	switch {
	case len(text) > most:
		return fmt.Errorf("%w: %d bytes; want at most %d", ErrOffsetMetadataTooLarge, len(text), most)
	case !utf8.ValidString(text):
		return fmt.Errorf("%w: the metadata of an offset is not UTF-8", ErrInvalidGroupRequest)
	}
	return nil
}

// expired returns the expired offsets, except those of topics that members read. If
// their topics cannot be determined, it returns none.
func (g *group) expired(now time.Time, offsets map[string]topicOffsets) map[string]map[int32]offsetChange {
	expired := map[string]map[int32]offsetChange{}
	subscribed, known := g.subscribed()
	if g.state == Dead || !known {
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

// ends returns when an offset expires: at the time that its commit set, or when the
// retention has passed since the commit and, in a group without members, since the
// group became empty.
func (g *group) ends(o CommittedOffset) time.Time {
	if !o.Expires.IsZero() {
		return o.Expires
	}
	since := o.At
	if g.state == Empty && g.emptySince.After(since) {
		since = g.emptySince
	}
	return since.Add(g.config.OffsetRetention)
}

// Sorted returns the topics of a map, by name.
func Sorted[V any](topics map[string]V) []string { return slices.Sorted(maps.Keys(topics)) }
