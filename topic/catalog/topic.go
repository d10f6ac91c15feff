package catalog

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// TopicsPrefix begins the keys of topics.
const TopicsPrefix = "topics/"

// Topic is the record of a topic.
type Topic struct {
	Header
	ID         string            `json:"id"`
	Partitions []Partition       `json:"partitions"`
	Settings   map[string]string `json:"settings,omitempty"`
	// Owner is the account that created the topic; "" if there was none, or an earlier version created it.
	Owner string `json:"owner,omitempty"`
	// Lends reports, of a view, that a right to it is enough to read it: see [topic.Spec].
	Lends bool `json:"lends,omitempty"`
	// Delays reports whether its records may be delayed now, or could be in the past.
	Delays bool `json:"delays,omitempty"`
	// Deleting reports that its logs are being removed; the key goes after them.
	Deleting bool `json:"deleting,omitempty"`
	// Deleter is the node that removes them, as long as it is alive.
	Deleter int32 `json:"deleter,omitempty"`
	// Removed holds, by number, where removed partitions ended.
	Removed map[int]Removed `json:"removed,omitempty"`
}

// Partition is the record of a partition.
type Partition struct {
	// Epoch is the epoch of the present leader: it rises whenever a broker begins to
	// lead the partition.
	Epoch int32 `json:"epoch"`
	// Leader is the node that has claimed that epoch; 0 before the first.
	Leader int32 `json:"leader,omitempty"`
	// Start is the first readable offset, if records were deleted.
	Start int64 `json:"start,omitempty"`
	// Replicas are the brokers that are to keep it, the preferred leader first.
	Replicas []int32 `json:"replicas"`
	// DelayLog reports that the log of its delayed records was made, so that a missing one was
	// lost.
	DelayLog bool `json:"delay_log,omitempty"`
	// Elect is the epoch in which an election of the preferred leader was requested.
	Elect int32 `json:"elect,omitempty"`
	// Until is when a removed partition is deleted, in milliseconds since the epoch; 0
	// for one that was not removed. Deleting reports that its logs are being removed;
	// its place goes after them.
	Until    int64 `json:"until,omitempty"`
	Deleting bool  `json:"deleting,omitempty"`
}

// ReadTopic decodes what is stored of a topic.
func ReadTopic(item topic.Item) (Topic, error) {
	record, err := decode(item, func(t *Topic) *Header { return &t.Header })
	if err != nil {
		return record, err
	}
	if _, err := topic.ParseID(record.ID); err != nil {
		return record, fmt.Errorf("metadata of %s: %w", item.Key, err)
	}
	for i := range record.Partitions {
		if replicas := record.Partitions[i].Replicas; slices.Equal(replicas, []int32{0}) {
			replicas[0] = 1 // single servers were node 0 at first
		}
	}
	return record, nil
}

// Encode returns what is to be stored of the topic.
func (r Topic) Encode() ([]byte, error) {
	r.Format = recordFormat
	return encode(r, r.Header)
}

// Removed is what the record keeps of a deleted partition.
type Removed struct {
	// Times is how often a partition of the number was removed; Epoch and Start are
	// where the last one ended.
	Times int   `json:"times"`
	Epoch int32 `json:"epoch"`
	Start int64 `json:"start"`
}

// Visible returns the number of partitions that were not removed.
func (r *Topic) Visible() int32 {
	count := len(r.Partitions)
	for count > 0 && r.Partitions[count-1].Until > 0 {
		count--
	}
	return int32(count)
}

// Staying returns the number of partitions that stay at now: the grace of those above
// has passed.
func (r *Topic) Staying(now time.Time) int {
	count := len(r.Partitions)
	for count > 0 {
		if p := r.Partitions[count-1]; !p.Deleting && (p.Until == 0 || p.Until > now.UnixMilli()) {
			break
		}
		count--
	}
	return count
}

// Kept returns the number of partitions whose logs stay.
func (r *Topic) Kept() int {
	count := len(r.Partitions)
	for count > 0 && r.Partitions[count-1].Deleting {
		count--
	}
	return count
}

// Removals returns how often a partition of that number was removed.
func (r *Topic) Removals(number int) int { return r.Removed[number].Times }

// ForgetDeleted removes the places of partitions whose logs are gone, and records where
// they ended.
func (r *Topic) ForgetDeleted() {
	kept := r.Kept()
	for i := kept; i < len(r.Partitions); i++ {
		if r.Removed == nil {
			r.Removed = map[int]Removed{}
		}
		p := r.Partitions[i]
		r.Removed[i] = Removed{Times: r.Removals(i) + 1, Epoch: p.Epoch, Start: p.Start}
	}
	r.Partitions = r.Partitions[:kept]
}

// Targets reports whether a node is to keep a partition of the record.
func (r *Topic) Targets(node int32) bool {
	return slices.ContainsFunc(r.Partitions, func(p Partition) bool { return slices.Contains(p.Replicas, node) })
}

// Names returns the names of a partition; the record's ID must be valid.
func (r *Topic) Names(number int) Names {
	id, _ := topic.ParseID(r.ID)
	return NamesOf(id, int32(number), r.Removals(number))
}

// Names holds the names under which a partition is stored.
type Names struct {
	Records, Delays string // logs
	// Clean begins the names of the generations of the compacted log.
	Clean                string
	Snapshot, Compaction string // keys of the metadata
}

// The prefixes of the logs of records and of clean generations, and of the keys of producers'
// snapshots and of compacted logs.
const (
	RecordsPrefix     = "records-"
	CleanPrefix       = "clean-"
	ProducersPrefix   = "producers/"
	CompactionsPrefix = "compactions/"
)

// NamesOf returns the names of a partition. A partition whose number was used before by
// a removed one has other names, so that no delayed operation of that one reaches it.
func NamesOf(id topic.ID, number int32, removals int) Names {
	again := ""
	if removals > 0 {
		again = fmt.Sprintf("-%d", removals)
	}
	return Names{
		Records:  fmt.Sprintf(RecordsPrefix+"%x-%d%s", id[:], number, again),
		Delays:   fmt.Sprintf("delayed-%x-%d%s", id[:], number, again),
		Clean:    fmt.Sprintf(CleanPrefix+"%x-%d%s-", id[:], number, again),
		Snapshot: fmt.Sprintf(ProducersPrefix+"%x/%d%s", id[:], number, again),

		Compaction: fmt.Sprintf(CompactionsPrefix+"%x/%d%s", id[:], number, again),
	}
}

// Get returns an item; a missing one has revision 0.
func Get(ctx context.Context, meta topic.Meta, key string) (topic.Item, error) {
	item, err := meta.Get(ctx, key)
	if errors.Is(err, topic.ErrNotFound) {
		return topic.Item{Key: key}, nil
	}
	return item, err
}

const (
	// StoreAttempts bounds the attempts of a write that conflicts with others.
	StoreAttempts = 5
)

// Uncertain reports whether a write may have been stored, or conflicted: read again.
func Uncertain(err error) bool {
	return errors.Is(err, topic.ErrConflict) || errors.Is(err, topic.ErrUncertain) || errors.Is(err, topic.ErrNotFound)
}

// Replicas returns the nodes that are to keep each partition.
func (r *Topic) Replicas() [][]int32 {
	sets := make([][]int32, len(r.Partitions))
	for i, p := range r.Partitions {
		sets[i] = p.Replicas
	}
	return sets
}
