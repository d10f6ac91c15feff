package migrate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/compact"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/txn"
)

// ErrCluster reports that a store has several nodes: only a store of a single node can be
// migrated.
var ErrCluster = errors.New("the store is a cluster's")

// Export reads the data of a store of one node for its migration into a cluster: topics,
// partitions and groups, as stored. It may be used while a broker serves; the data is
// final once the store is fenced.
type Export struct {
	store topic.Store
	Fencer

	mu   sync.Mutex
	logs map[string]topic.Log // of the last inventory
}

// Fencer makes a store final. The broker that serves the store implements it.
type Fencer interface {
	Fence(ctx context.Context, cluster string, run int64) error
	Unfence(ctx context.Context, cluster string, run int64) error
	Moved(ctx context.Context, cluster string, run int64, nodes []catalog.Address) error
}

// NewExport returns the export of a store, and the broker that serves it, nil for none.
// The error is ErrCluster.
func NewExport(store topic.Store, broker Fencer) (*Export, error) {
	if !store.Cluster().Alone() {
		return nil, fmt.Errorf("%w: only one of a single node can be moved", ErrCluster)
	}
	e := &Export{store: store, Fencer: stopped{store.Meta()}, logs: map[string]topic.Log{}}
	if broker != nil {
		e.Fencer = broker
	}
	return e, nil
}

// stopped fences a store without a broker: it only writes the metadata.
type stopped struct{ meta topic.Meta }

func (s stopped) Fence(ctx context.Context, cluster string, run int64) error {
	move := catalog.Migration{State: catalog.Fenced, Cluster: cluster, Run: run}
	_, err := catalog.ChangeMigration(ctx, s.meta, move, func(now catalog.Migration) error { return catalog.MayFence(now, move) })
	return err
}

func (s stopped) Unfence(ctx context.Context, cluster string, run int64) error {
	move := catalog.Migration{State: catalog.Serving, Cluster: cluster, Run: run}
	_, err := catalog.ChangeMigration(ctx, s.meta, move, func(now catalog.Migration) error { return catalog.MayUnfence(now, move) })
	return err
}

func (s stopped) Moved(ctx context.Context, cluster string, run int64, nodes []catalog.Address) error {
	_, err := catalog.ChangeMigration(ctx, s.meta, catalog.Migration{State: catalog.Migrated, Cluster: cluster, Run: run, Nodes: nodes}, catalog.MayBeDone(cluster))
	return err
}

// Inventory lists the contents of a store of one node.
type Inventory struct {
	// Cluster is the identity of the store.
	Cluster string `json:"cluster"`
	// Move is the store's migration record.
	Move   catalog.Migration `json:"move"`
	Topics []InventoryTopic  `json:"topics"`
	// Groups are the names of groups with members or offsets; Producers is the number
	// of partitions that have a snapshot of their producers.
	Groups    []string `json:"groups"`
	Producers int      `json:"producers"`
}

// InventoryTopic is a topic of an inventory.
type InventoryTopic struct {
	Name string `json:"name"`
	// ID is the topic's identity, in hexadecimal.
	ID string `json:"id"`
	// Source is the source of a view.
	Source     string `json:"source,omitempty"`
	Partitions int    `json:"partitions"`
	// Compacted reports whether its cleanup.policy says so.
	Compacted bool `json:"compacted,omitempty"`
	Delays    bool `json:"delays,omitempty"`
	// Removals is how often a partition of each number was removed before.
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
	// Bytes and Records count its contents; 0 for delayed records.
	Bytes   int64 `json:"bytes"`
	Records int64 `json:"records"`
}

// EntryID distinguishes entries of the same sequence.
type EntryID struct {
	Mark topic.Mark `json:"mark"`
	Sum  uint32     `json:"sum"` // CRC-32C of the data
}

func idOf(entry topic.Entry) EntryID {
	return EntryID{Mark: entry.Mark, Sum: crc32.Checksum(entry.Data, topic.Castagnoli)}
}

// Inventory returns the present inventory, without topics that are being deleted.
func (e *Export) Inventory(ctx context.Context) (Inventory, error) {
	meta := e.store.Meta()
	var inventory Inventory
	id, err := catalog.ClusterID(ctx, meta)
	if err != nil {
		return inventory, err
	}
	inventory.Cluster = id
	if inventory.Move, _, err = catalog.ReadMigration(ctx, meta); err != nil {
		return inventory, err
	}
	items, err := meta.List(ctx, catalog.TopicsPrefix)
	if err != nil {
		return inventory, err
	}
	logs := map[string]topic.Log{}
	for _, item := range items {
		record, err := catalog.ReadTopic(item)
		if err != nil {
			return inventory, err
		}
		if record.Deleting {
			continue
		}
		t, err := e.topic(ctx, item.Key[len(catalog.TopicsPrefix):], record, logs)
		if errors.Is(err, topic.ErrNoLog) {
			continue // it is being deleted
		}
		if err != nil {
			return inventory, err
		}
		inventory.Topics = append(inventory.Topics, t)
	}
	e.mu.Lock()
	e.logs = logs
	e.mu.Unlock()
	err = e.countMeta(ctx, &inventory)
	return inventory, err
}

// topic returns a topic's present state, and adds its logs.
func (e *Export) topic(ctx context.Context, name string, record catalog.Topic, logs map[string]topic.Log) (InventoryTopic, error) {
	settings, err := topic.ParseSettings(record.Settings, topic.Config{})
	topic := InventoryTopic{
		Name: name, ID: record.ID, Compacted: err == nil && settings.Compact, Source: record.Settings[topic.SettingViewOf],
		Partitions: len(record.Partitions), Delays: record.Delays, Removals: map[int]int{}, Logs: []InventoryLog{},
	}
	for number := range record.Partitions {
		if times := record.Removals(number); times > 0 {
			topic.Removals[number] = times
		}
	}
	records := map[string]catalog.Names{} // by the log of records
	for number := range record.Partitions {
		names := record.Names(number)
		records[names.Records] = names
	}
	for _, name := range topic.logNames() {
		log, err := e.open(ctx, name, records)
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

// open opens a log of a topic. That of records must exist, and is read with its clean generation;
// that of delayed records is made when it is first read.
func (e *Export) open(ctx context.Context, name string, records map[string]catalog.Names) (topic.Log, error) {
	if names, found := records[name]; found {
		return compact.Open(ctx, e.store, names)
	}
	return e.store.OpenLog(ctx, name, []int32{e.store.Cluster().Node()})
}

// logNames returns the names of a topic's logs.
func (t InventoryTopic) logNames() []string {
	id, _ := topic.ParseID(t.ID) // checked when it was read
	var all []string
	for number := range t.Partitions {
		names := catalog.NamesOf(id, int32(number), t.Removals[number])
		all = append(all, names.Records)
		if t.Delays {
			all = append(all, names.Delays)
		}
	}
	return all
}

// listLog returns a log's present state.
func listLog(ctx context.Context, name string, log topic.Log) (InventoryLog, error) {
	first, last, err := log.Ends(ctx)
	listed := InventoryLog{Name: name, First: first, Last: last}
	if err != nil || first > last {
		return listed, err
	}
	begin, err := topic.ReadEntry(ctx, log, first)
	if err != nil {
		return listed, err
	}
	end, err := topic.ReadEntry(ctx, log, last)
	if err != nil {
		return listed, err
	}
	listed.First, listed.End = begin.Sequence, idOf(end) // trimmed since, maybe
	listed.Bytes = end.Mark.Bytes - begin.Mark.Bytes + int64(len(begin.Data))
	listed.Records = end.Mark.Next - begin.Mark.Base
	return listed, nil
}

// countMeta adds the groups and producers.
func (e *Export) countMeta(ctx context.Context, inventory *Inventory) error {
	names := map[string]bool{}
	groups, err := e.store.Meta().List(ctx, group.GroupPrefix)
	if err != nil {
		return err
	}
	for _, item := range groups {
		names[strings.TrimPrefix(item.Key, group.GroupPrefix)] = true
	}
	offsets, err := e.store.Meta().List(ctx, group.OffsetsPrefix)
	if err != nil {
		return err
	}
	for _, item := range offsets {
		group, _ := group.SplitOffsetsKey(item.Key)
		names[group] = true
	}
	inventory.Groups = group.Sorted(names)
	producers, err := e.store.Meta().List(ctx, catalog.ProducersPrefix)
	inventory.Producers = len(producers)
	return err
}

// EntryID returns the identity of the entry of a sequence: ErrNotFound if there is none.
func (e *Export) EntryID(ctx context.Context, log string, sequence uint64) (EntryID, error) {
	l, err := e.find(log)
	if err != nil {
		return EntryID{}, err
	}
	entry, err := topic.ReadEntry(ctx, l, sequence)
	if err == nil && entry.Sequence != sequence {
		err = fmt.Errorf("entry %d of log %s: %w", sequence, log, topic.ErrNotFound)
	}
	return idOf(entry), err
}

// Entries returns entries of a log of the last inventory, as [topic.Log] reads them.
func (e *Export) Entries(ctx context.Context, log string, from uint64, maxBytes int) ([]topic.Entry, error) {
	l, err := e.find(log)
	if err != nil {
		return nil, err
	}
	return l.Read(ctx, from, maxBytes)
}

func (e *Export) find(log string) (topic.Log, error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if l := e.logs[log]; l != nil {
		return l, nil
	}
	return nil, fmt.Errorf("%w: %q is not of the inventory", topic.ErrNoLog, log)
}

// movedPrefixes are the prefixes of the keys of the metadata that are migrated, in order.
// Other keys belong to the store itself.
var movedPrefixes = []string{group.OwnersPrefix, catalog.GroupSettingsPrefix, group.GroupPrefix, group.OffsetsPrefix, catalog.ProducerIDsKey, catalog.ProducersPrefix, catalog.TopicsPrefix, txn.Prefix}

// Items returns the migrated items of the metadata after a key, ordered by key: at least
// one if there is one, and more up to maxBytes.
func (e *Export) Items(ctx context.Context, after string, maxBytes int) ([]topic.Item, error) {
	var page []topic.Item
	size := 0
	for _, prefix := range movedPrefixes {
		if after > prefix && !strings.HasPrefix(after, prefix) {
			continue
		}
		items, err := e.store.Meta().List(ctx, prefix)
		if err != nil {
			return nil, err
		}
		at, _ := slices.BinarySearchFunc(items, after, func(item topic.Item, key string) int { return cmp.Compare(item.Key, key) })
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
