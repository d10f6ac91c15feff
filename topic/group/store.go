package group

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
)

// Keys of the metadata: one item for each group that has or had members, and one for
// each topic in which a group has offsets. Values are JSON.
const (
	GroupPrefix   = "groups/"
	OffsetsPrefix = "offsets/"
	// groupFormat is the version of both kinds of value.
	groupFormat = 1
)

// groupRecord is a stored group: in its last stable generation, or without members.
// Durations and times are milliseconds.
type groupRecord struct {
	Format     int   `json:"format"`
	Generation int32 `json:"generation"`
	// Epoch is the epoch of the group's slot when the generation began.
	Epoch        int64          `json:"epoch,omitempty"`
	ProtocolType string         `json:"protocol_type"`
	Protocol     string         `json:"protocol,omitempty"`
	Leader       string         `json:"leader,omitempty"`
	EmptySinceMS int64          `json:"empty_since_ms,omitempty"`
	Members      []memberRecord `json:"members,omitempty"`
	// Consumers is set if the group uses the consumer protocol. The generation is the epoch of
	// the target then.
	Consumers *consumersRecord `json:"consumers,omitempty"`
}

type memberRecord struct {
	ID          string     `json:"id"`
	Instance    string     `json:"instance,omitempty"`
	Client      string     `json:"client"`
	Host        string     `json:"host"`
	SessionMS   int64      `json:"session_ms"`
	RebalanceMS int64      `json:"rebalance_ms"`
	Protocols   []Protocol `json:"protocols"`
	Assignment  []byte     `json:"assignment"`
}

// offsetsRecord is the value of a topic's offsets.
type offsetsRecord struct {
	Format     int                    `json:"format"`
	Partitions map[int32]offsetRecord `json:"partitions"`
}

type offsetRecord struct {
	Offset    int64  `json:"offset"`
	Epoch     int32  `json:"epoch"`
	Metadata  string `json:"metadata,omitempty"`
	AtMS      int64  `json:"at_ms"`
	ExpiresMS int64  `json:"expires_ms,omitempty"`
}

// record returns the group's record with these assignments; nil: the present ones.
func (g *group) record(assignments map[string][]byte) groupRecord {
	r := groupRecord{
		Format: groupFormat, Generation: g.generation, Epoch: g.begunIn,
		ProtocolType: g.protocolType, Protocol: g.protocol, Leader: g.leader,
	}
	if len(g.members) == 0 && !g.emptySince.IsZero() {
		r.EmptySinceMS = g.emptySince.UnixMilli()
	}
	if g.consumers != nil {
		r.Consumers = g.consumers.record()
	}
	for _, m := range g.inOrder() {
		assignment := m.assignment
		if assignments != nil {
			assignment = assignments[m.id]
		}
		r.Members = append(r.Members, memberRecord{
			ID: m.id, Instance: m.instance, Client: strings.ToValidUTF8(m.client, ""), Host: m.host,
			SessionMS: m.session.Milliseconds(), RebalanceMS: m.rebalance.Milliseconds(),
			Protocols: m.protocols, Assignment: assignment,
		})
	}
	return r
}

// unstoredGenerations is how many generation numbers are skipped after a restart, and
// for each claim of the group's slot: generations that had begun but were not stored, in
// which members may still be. A coordinator begins no more than that without storing one.
const unstoredGenerations = 100

// mostSkippedEpochs bounds how many claims count: generation numbers are finite.
const mostSkippedEpochs = 1_000_000

// restore sets the group from its record. Sessions start again.
func (g *group) restore(now time.Time, r groupRecord) {
	g.generation, g.protocolType, g.protocol, g.leader = r.Generation, r.ProtocolType, r.Protocol, r.Leader
	g.begunIn = r.Epoch
	g.skip = unstoredGenerations * int32(min(max(g.epoch-r.Epoch, 1), mostSkippedEpochs))
	if r.EmptySinceMS != 0 {
		g.emptySince = time.UnixMilli(r.EmptySinceMS)
	}
	if r.Consumers != nil {
		g.restoreConsumers(now, *r.Consumers)
		if !g.consumers.anyClassic() { // no member has been in a generation that is not stored
			g.skip = 0
		}
	}
	for _, saved := range r.Members {
		g.lastNumber++
		m := &groupMember{
			id: saved.ID, instance: saved.Instance, client: saved.Client, host: saved.Host, number: g.lastNumber,
			session: restoredTimeout(saved.SessionMS), rebalance: restoredTimeout(saved.RebalanceMS),
			protocols: saved.Protocols, assignment: saved.Assignment, synced: true,
		}
		m.size = JoinRequest{Instance: m.instance, Client: m.client, ProtocolType: g.protocolType, Protocols: m.protocols}.size()
		m.touch(now)
		g.members[m.id] = m
		if m.instance != "" {
			g.instances[m.instance] = m.id
		}
		g.state = Stable
	}
	if len(r.Members) > 0 && r.Leader == "" { // it was a group of the consumer protocol until then
		g.rebalance(now)
	}
}

// restoredTimeout returns a member's timeout, limited to the valid range.
func restoredTimeout(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), maxMemberTimeout.Milliseconds())) * time.Millisecond
}

// GroupKey returns the key of a group.
func GroupKey(group string) string { return GroupPrefix + group }

// OffsetsKey returns the key of a group's offsets of a topic.
func OffsetsKey(group, topic string) string { return OffsetsPrefix + group + "/" + topic }

// SplitOffsetsKey is the inverse of offsetsKey. Names of topics have no slash.
func SplitOffsetsKey(key string) (group, topic string) {
	key = strings.TrimPrefix(key, OffsetsPrefix)
	at := strings.LastIndexByte(key, '/')
	return key[:max(at, 0)], key[at+1:]
}

func encodeOffsets(partitions map[int32]CommittedOffset) ([]byte, error) {
	record := offsetsRecord{Format: groupFormat, Partitions: make(map[int32]offsetRecord, len(partitions))}
	for partition, o := range partitions {
		r := offsetRecord{Offset: o.Offset, Epoch: o.Epoch, Metadata: o.Metadata, AtMS: o.At.UnixMilli()}
		if !o.Expires.IsZero() {
			r.ExpiresMS = o.Expires.UnixMilli()
		}
		record.Partitions[partition] = r
	}
	value, err := json.Marshal(record)
	if err == nil && len(value) > maxGroupRecord {
		err = fmt.Errorf("%w: all offsets of the topic are %d bytes; want at most %d", ErrOffsetMetadataTooLarge, len(value), maxGroupRecord)
	}
	return value, err
}

func decodeOffsets(item topic.Item) (topicOffsets, error) {
	var record offsetsRecord
	if err := decodeRecord(item, &record, &record.Format); err != nil {
		return topicOffsets{}, err
	}
	t := topicOffsets{revision: item.Revision, partitions: make(map[int32]CommittedOffset, len(record.Partitions))}
	for partition, r := range record.Partitions {
		o := CommittedOffset{Offset: r.Offset, Epoch: r.Epoch, Metadata: r.Metadata, At: time.UnixMilli(r.AtMS)}
		if r.ExpiresMS != 0 {
			o.Expires = time.UnixMilli(r.ExpiresMS)
		}
		t.partitions[partition] = o
	}
	return t, nil
}

func decodeRecord(item topic.Item, into any, format *int) error {
	if err := json.Unmarshal(item.Value, into); err != nil {
		return fmt.Errorf("metadata %q: %w", item.Key, err)
	}
	if *format != groupFormat {
		return fmt.Errorf("metadata %q: format %d; this version reads %d: upgrade this node", item.Key, *format, groupFormat)
	}
	return nil
}

// storeOffsets applies changes to the stored offsets, which are believed to be have, and
// returns the new ones. Concurrent changes of other offsets are kept. ErrNotCoordinator
// if the ownership has ended.
func storeOffsets(ctx context.Context, l *Ownership, key string, have topicOffsets, changes map[int32]offsetChange) (topicOffsets, error) {
	for range catalog.StoreAttempts {
		want := topicOffsets{partitions: have.with(changes)}
		if len(want.partitions) == 0 && have.revision == 0 {
			return want, nil
		}
		value, err := encodeOffsets(want.partitions)
		if err != nil {
			return have, err
		}
		if len(want.partitions) == 0 {
			err = l.delete(ctx, key, have.revision)
		} else {
			want.revision, err = l.put(ctx, key, value, have.revision)
		}
		if err == nil {
			return want, nil
		}
		if !catalog.Uncertain(err) {
			return have, err
		}
		item, err := l.reread(ctx, key)
		if err != nil {
			return have, err
		}
		if item.Revision == 0 {
			have = topicOffsets{}
		} else if have, err = decodeOffsets(item); err != nil {
			return have, err
		}
		if bytes.Equal(item.Value, value) {
			return have, nil
		}
	}
	return have, fmt.Errorf("%q: %w, %d times", key, topic.ErrConflict, catalog.StoreAttempts)
}

// storeGroup replaces the stored group of that revision, and returns the new revision. A
// newer generation, or an ownership that has ended, means that another broker has taken
// over the group: ErrNotCoordinator.
func storeGroup(ctx context.Context, l *Ownership, key string, revision uint64, record groupRecord) (uint64, error) {
	value, err := json.Marshal(record)
	if err != nil {
		return revision, err
	}
	if len(value) > maxGroupRecord {
		return revision, fmt.Errorf("%w: %d bytes with all assignments; want at most %d", ErrGroupTooLarge, len(value), maxGroupRecord)
	}
	for range catalog.StoreAttempts {
		written, err := l.put(ctx, key, value, revision)
		if err == nil {
			return written, nil
		}
		if !catalog.Uncertain(err) {
			return revision, err
		}
		item, err := l.reread(ctx, key)
		if err != nil {
			return revision, err
		}
		revision = item.Revision
		if bytes.Equal(item.Value, value) {
			return revision, nil
		}
		var found groupRecord
		if revision != 0 {
			if err := decodeRecord(item, &found, &found.Format); err != nil {
				return revision, err
			}
		}
		if found.Generation > record.Generation {
			return revision, fmt.Errorf("%w: it has generation %d", ErrNotCoordinator, found.Generation)
		}
	}
	return revision, fmt.Errorf("%q: %w, %d times", key, topic.ErrConflict, catalog.StoreAttempts)
}

// RemoveItem deletes a key, whatever its value is. ErrNotCoordinator if the ownership
// has ended.
func RemoveItem(ctx context.Context, l *Ownership, key string, revision uint64) error {
	for range catalog.StoreAttempts {
		if revision == 0 {
			return nil
		}
		err := l.delete(ctx, key, revision)
		if err == nil {
			return nil
		}
		if !catalog.Uncertain(err) {
			return err
		}
		item, err := l.reread(ctx, key)
		if err != nil {
			return err
		}
		revision = item.Revision
	}
	return fmt.Errorf("%q: %w, %d times", key, topic.ErrConflict, catalog.StoreAttempts)
}
