package topic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
)

// ErrCluster says that a store has several nodes: only one of a single node can be
// moved.
var ErrCluster = errors.New("the store is a cluster's")

// Export reads all that a store of one node has, so that it can be moved into a
// cluster: what topics, partitions and groups are made of, as it is stored. It may
// be read while a broker serves; what it reads is final once it is fenced.
type Export struct {
	store Store
	fencer

	mu   sync.Mutex
	logs map[string]Log // of the last inventory
}

// fencer makes a store final; see [Broker.Fence] and its siblings.
type fencer interface {
	Fence(ctx context.Context, cluster string, run int64) error
	Unfence(ctx context.Context, cluster string, run int64) error
	Moved(ctx context.Context, cluster string, run int64, nodes []Address) error
}

// NewExport returns the export of a store, which a broker serves, or nobody if it is
// nil. The error is ErrCluster.
func NewExport(store Store, broker *Broker) (*Export, error) {
	if store.Cluster() != nil {
		return nil, fmt.Errorf("%w: only one of a single node can be moved", ErrCluster)
	}
	e := &Export{store: store, fencer: stopped{store.Meta()}, logs: map[string]Log{}}
	if broker != nil {
		e.fencer = broker
	}
	return e, nil
}

// stopped is a store that nobody serves: only its metadata need say what it may do.
type stopped struct{ meta Meta }

func (s stopped) Fence(ctx context.Context, cluster string, run int64) error {
	move := Move{State: MoveFenced, Cluster: cluster, Run: run}
	_, err := changeMove(ctx, s.meta, move, func(now Move) error { return mayFence(now, move) })
	return err
}

func (s stopped) Unfence(ctx context.Context, cluster string, run int64) error {
	move := Move{State: MoveServing, Cluster: cluster, Run: run}
	_, err := changeMove(ctx, s.meta, move, func(now Move) error { return mayUnfence(now, move) })
	return err
}

func (s stopped) Moved(ctx context.Context, cluster string, run int64, nodes []Address) error {
	_, err := changeMove(ctx, s.meta, Move{State: MoveDone, Cluster: cluster, Run: run, Nodes: nodes}, mayBeDone(cluster))
	return err
}

// Inventory is what a store of one node has.
type Inventory struct {
	// Cluster is the identity of the store.
	Cluster string `json:"cluster"`
	// Move is what it says of its move.
	Move   Move             `json:"move"`
	Topics []InventoryTopic `json:"topics"`
	// Groups are the names of those with members or offsets; Producers is how
	// many partitions have a snapshot of their producers.
	Groups    []string `json:"groups"`
	Producers int      `json:"producers"`
}

// InventoryTopic is a topic of an inventory.
type InventoryTopic struct {
	Name string `json:"name"`
	// ID is its identity, in hexadecimal.
	ID string `json:"id"`
	// Source is what a view shows a part of.
	Source     string `json:"source,omitempty"`
	Partitions int    `json:"partitions"`
	Delays     bool   `json:"delays,omitempty"`
	// Removals is how often a partition of a number was removed before.
	Removals map[int]int    `json:"removals,omitempty"`
	Logs     []InventoryLog `json:"logs"`
}

// InventoryLog is a log of an inventory.
type InventoryLog struct {
	Name string `json:"name"`
	// First and Last are its ends; First is Last+1 if it has no entries.
	First uint64 `json:"first"`
	Last  uint64 `json:"last"`
	// End is the last entry; the zero value if there is none.
	End EntryID `json:"end"`
	// Bytes of data, and records, that it holds; of delayed records 0.
	Bytes   int64 `json:"bytes"`
	Records int64 `json:"records"`
}

// EntryID tells an entry from another of the same sequence.
type EntryID struct {
	Mark Mark   `json:"mark"`
	Sum  uint32 `json:"sum"` // CRC-32C of the data
}

func idOf(entry Entry) EntryID {
	return EntryID{Mark: entry.Mark, Sum: crc32.Checksum(entry.Data, castagnoli)}
}

// Inventory returns what the store has now. What is being deleted is left out.
func (e *Export) Inventory(ctx context.Context) (Inventory, error) {
	meta := e.store.Meta()
	var inventory Inventory
	id, err := loadClusterID(ctx, meta)
	if err != nil {
		return inventory, err
	}
	inventory.Cluster = id
	if inventory.Move, _, err = readMove(ctx, meta); err != nil {
		return inventory, err
	}
	items, err := meta.List(ctx, topicsPrefix)
	if err != nil {
		return inventory, err
	}
	logs := map[string]Log{}
	for _, item := range items {
		record, err := readTopicRecord(item)
		if err != nil {
			return inventory, err
		}
		if record.Deleting {
			continue
		}
		topic, err := e.topic(ctx, item.Key[len(topicsPrefix):], record, logs)
		if errors.Is(err, ErrNoLog) {
			continue // it is being deleted
		}
		if err != nil {
			return inventory, err
		}
		inventory.Topics = append(inventory.Topics, topic)
	}
	e.mu.Lock()
	e.logs = logs
	e.mu.Unlock()
	err = e.countMeta(ctx, &inventory)
	return inventory, err
}

// topic returns a topic as it is now, and adds its logs.
func (e *Export) topic(ctx context.Context, name string, record topicRecord, logs map[string]Log) (InventoryTopic, error) {
	topic := InventoryTopic{
		Name: name, ID: record.ID, Source: record.Settings[SettingViewOf],
		Partitions: len(record.Partitions), Delays: record.Delays, Removals: map[int]int{}, Logs: []InventoryLog{},
	}
	for number := range record.Partitions {
		if times := record.removals(number); times > 0 {
			topic.Removals[number] = times
		}
	}
	for _, name := range topic.logNames() {
		log, err := e.store.OpenLog(ctx, name, nil)
		if err != nil {
			return topic, err
		}
		logs[name] = log
		listed, err := listLog(ctx, name, log)
		if err != nil {
			return topic, fmt.Errorf("log %s of topic %s: %w", name, topic.Name, err)
		}
		topic.Logs = append(topic.Logs, listed)
	}
	return topic, nil
}

// logNames are the logs of a topic.
func (t InventoryTopic) logNames() []string {
	id, _ := parseID(t.ID) // it was checked when it was read
	var all []string
	for number := range t.Partitions {
		names := namesOf(id, int32(number), t.Removals[number])
		all = append(all, names.records)
		if t.Delays {
			all = append(all, names.delays)
		}
	}
	return all
}

// listLog returns a log as it is now.
func listLog(ctx context.Context, name string, log Log) (InventoryLog, error) {
	first, last, err := log.Ends(ctx)
	listed := InventoryLog{Name: name, First: first, Last: last}
	if err != nil || first > last {
		return listed, err
	}
	begin, err := readEntry(ctx, log, first)
	if err != nil {
		return listed, err
	}
	end, err := readEntry(ctx, log, last)
	if err != nil {
		return listed, err
	}
	listed.First, listed.End = begin.Sequence, idOf(end) // it may have been trimmed meanwhile
	listed.Bytes = end.Mark.Bytes - begin.Mark.Bytes + int64(len(begin.Data))
	listed.Records = end.Mark.Next - begin.Mark.Base
	return listed, nil
}

// countMeta adds the groups and producers.
func (e *Export) countMeta(ctx context.Context, inventory *Inventory) error {
	names := map[string]bool{}
	groups, err := e.store.Meta().List(ctx, groupPrefix)
	if err != nil {
		return err
	}
	for _, item := range groups {
		names[strings.TrimPrefix(item.Key, groupPrefix)] = true
	}
	offsets, err := e.store.Meta().List(ctx, offsetsPrefix)
	if err != nil {
		return err
	}
	for _, item := range offsets {
		group, _ := splitOffsetsKey(item.Key)
		names[group] = true
	}
	inventory.Groups = sortedTopics(names)
	producers, err := e.store.Meta().List(ctx, producersPrefix)
	inventory.Producers = len(producers)
	return err
}

// EntryID returns what the entry of a sequence is: ErrNotFound if the log has none.
func (e *Export) EntryID(ctx context.Context, log string, sequence uint64) (EntryID, error) {
	l, err := e.find(log)
	if err != nil {
		return EntryID{}, err
	}
	entry, err := readEntry(ctx, l, sequence)
	if err == nil && entry.Sequence != sequence {
		err = fmt.Errorf("entry %d of log %s: %w", sequence, log, ErrNotFound)
	}
	return idOf(entry), err
}

// Entries returns entries of a log of the last inventory, as [Log] reads them.
func (e *Export) Entries(ctx context.Context, log string, from uint64, maxBytes int) ([]Entry, error) {
	l, err := e.find(log)
	if err != nil {
		return nil, err
	}
	return l.Read(ctx, from, maxBytes)
}

func (e *Export) find(log string) (Log, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.logs[log]; l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("%w: %q is not of the inventory", ErrNoLog, log)
}

// movedPrefixes begin the keys of the metadata that are moved, in the order of the
// keys. What is left out is of the store itself.
var movedPrefixes = []string{groupPrefix, offsetsPrefix, producerIDsKey, producersPrefix, topicsPrefix}

// Items returns what is moved of the metadata, ordered by key: the items after a
// key, at least one if there is one, and more up to maxBytes.
func (e *Export) Items(ctx context.Context, after string, maxBytes int) ([]Item, error) {
	var page []Item
	size := 0
	for _, prefix := range movedPrefixes {
		if after > prefix && !strings.HasPrefix(after, prefix) {
			continue
		}
		items, err := e.store.Meta().List(ctx, prefix)
		if err != nil {
			return nil, err
		}
		at, _ := slices.BinarySearchFunc(items, after, func(item Item, key string) int { return cmp.Compare(item.Key, key) })
		for _, item := range items[at:] {
			if item.Key == after {
				continue
			}
			if size += len(item.Key) + len(item.Value); len(page) > 0 && size > maxBytes {
				return page, nil
			}
			page = append(page, item)
		}
	}
	return page, nil
}
