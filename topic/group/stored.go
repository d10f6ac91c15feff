package group

import (
	"context"
	"errors"

	"github.com/sluice-project/sluice/topic"
)

// TopicOffsets are a group's committed offsets in one topic.
type TopicOffsets struct {
	Topic      string
	Partitions map[int32]CommittedOffset
}

// StoredOffsets returns the offsets that a group has committed, by topic, from the metadata,
// which every node has.
func StoredOffsets(ctx context.Context, meta topic.Meta, name string) (all []TopicOffsets, err error) {
	err = eachStored(ctx, meta, OffsetsKey(name, ""), func(of string, in TopicOffsets) bool {
		if of == name { // the name of another may begin with this one and a slash
			all = append(all, in)
		}
		return true
	})
	return all, err
}

// EachStored calls each with the offsets of all groups, by group and topic, until that returns
// false.
func EachStored(ctx context.Context, meta topic.Meta, each func(group string, in TopicOffsets) bool) error {
	return eachStored(ctx, meta, OffsetsPrefix, each)
}

func eachStored(ctx context.Context, meta topic.Meta, prefix string, each func(group string, in TopicOffsets) bool) error {
	items, err := meta.List(ctx, prefix)
	if err != nil {
		return err
	}
	for _, item := range items {
		offsets, err := decodeOffsets(item)
		if err != nil {
			return err
		}
		name, of := SplitOffsetsKey(item.Key)
		if !each(name, TopicOffsets{Topic: of, Partitions: offsets.partitions}) {
			return nil
		}
	}
	return nil
}

// Stored reports whether a group has a record in the metadata: it has or had members.
func Stored(ctx context.Context, meta topic.Meta, name string) (bool, error) {
	_, err := meta.Get(ctx, GroupKey(name))
	if errors.Is(err, topic.ErrNotFound) {
		return false, nil
	}
	return err == nil, err
}
