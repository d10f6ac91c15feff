package broker

import (
	"context"
	"errors"
	"fmt"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/txn"
)

// outcomes carries the outcomes of transactions to the partitions and groups, whatever
// nodes serve these: the broker as package txn sees it.
type outcomes struct{ *Broker }

// Transactions returns the coordinator of transactions.
func (b *Broker) Transactions() *txn.Coordinator { return b.transactions }

// Coordinates implements [txn.Parts].
func (b outcomes) Coordinates(id string) bool { return b.groups.Coordinates(id) }

// Writable implements [txn.Parts].
func (b outcomes) Writable() ([]topic.Guard, error) { return b.unmoved(), b.moving.serves() }

// Mark ends a transaction in a partition, whatever node leads it. It has ended in a
// partition that does not exist any more.
func (b outcomes) Mark(ctx context.Context, name string, number int32, m txn.Marker) error {
	t, err := b.Topic(name)
	if err == nil {
		err = t.Has(number)
	}
	if errors.Is(err, topic.ErrNoTopic) || errors.Is(err, topic.ErrNoPartition) {
		return b.hasGone(ctx, name, number)
	}
	p, err := t.Find(number)
	if err != nil {
		return err
	}
	switch at := p.Leader(); at {
	case b.Node():
		return p.endTransaction(ctx, m)
	case -1:
		return fmt.Errorf("%w: no leader now of %s", topic.ErrNoAnswer, p)
	default:
		_, err = b.askLeader(ctx, &otherLeader{at, []int32{number}}, leaderRequest{Topic: name, Mark: &markRequest{number, m}})
		return err
	}
}

// hasGone returns ErrRetry unless the metadata does not have a partition.
func (b *Broker) hasGone(ctx context.Context, name string, number int32) error {
	if err := b.store.Meta().Sync(ctx); err != nil {
		return err
	}
	item, err := catalog.Get(ctx, b.store.Meta(), catalog.TopicsPrefix+name)
	if err != nil || item.Revision == 0 {
		return errors.Join(err, b.beingOpened(ctx, name))
	}
	record, err := catalog.ReadTopic(item)
	if err != nil || record.Deleting || int(number) >= record.Kept() {
		return err
	}
	return fmt.Errorf("%w: %s/%d is being made", topic.ErrRetry, name, number)
}

// markRequest asks a node to end a transaction in a partition that it leads.
type markRequest struct {
	Partition int32      `json:"partition"`
	Marker    txn.Marker `json:"marker"`
}

// markHere is Mark for a partition that this broker leads.
func (b *Broker) markHere(ctx context.Context, name string, r *markRequest) error {
	t, err := b.Topic(name)
	if err != nil {
		return err
	}
	p, err := t.Partition(r.Partition)
	if err != nil {
		return err
	}
	return p.endTransaction(ctx, r.Marker)
}

// beingOpened returns ErrRetry if an import is about to open a topic.
func (b *Broker) beingOpened(ctx context.Context, name string) (err error) {
	failed := catalog.Opening(ctx, b.store.Meta(), func(opening string) {
		if opening == name {
			err = fmt.Errorf("%w: %s is being opened", topic.ErrRetry, name)
		}
	})
	return errors.Join(failed, err)
}

// commitRequest asks a node to commit the offsets of a transaction to a group.
type commitRequest struct {
	Group   string      `json:"group"`
	Offsets txn.Offsets `json:"offsets"`
	Marker  txn.Marker  `json:"marker"`
}

// CommitOffsets implements [txn.Parts].
func (b outcomes) CommitOffsets(ctx context.Context, name string, offsets txn.Offsets, m txn.Marker) error {
	node, err := b.groups.Coordinator(ctx, name)
	if err != nil {
		return err
	}
	request := &commitRequest{name, offsets, m}
	if node == b.Node() {
		return b.commitHere(ctx, request)
	}
	_, err = b.askLeader(ctx, &otherLeader{node: node}, leaderRequest{Commit: request})
	return err
}

// commitHere commits the offsets of a transaction to a group that this node coordinates.
func (b *Broker) commitHere(ctx context.Context, r *commitRequest) error {
	if decided, err := b.transactions.Decided(ctx, r.Marker); err != nil || !decided {
		return err
	}
	commit := group.CommitRequest{MemberIdentity: group.MemberIdentity{Group: r.Group, Generation: -1}}
	for name, partitions := range r.Offsets {
		for number, o := range partitions {
			commit.Offsets = append(commit.Offsets, group.OffsetCommit{Topic: name, Partition: number, Offset: o.Offset, Epoch: o.Epoch, Metadata: o.Metadata})
		}
	}
	decided := func() (bool, error) { return b.transactions.Decided(ctx, r.Marker) }
	errs, err := b.groups.CommitDecided(commit, decided).Wait(ctx)
	return errors.Join(err, errors.Join(errs...))
}
