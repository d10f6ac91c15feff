package topic

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// reclaimMax is how long opening waits until coordinators have read what was
// imported of their groups.
const reclaimMax = 30 * time.Second

// Put writes items of the other store's metadata. Before Commit these are snapshots of
// producers, after it groups, offsets and the next id of a producer: what is of no
// topic of the import is left out. Topics are for Open.
func (m *Import) Put(ctx context.Context, source string, run int64, items []Item) error {
	record, _, err := m.of(ctx, source, run, ImportCopying, ImportOpening)
	if err != nil {
		return err
	}
	ids, names := map[string]bool{}, map[string]bool{}
	for _, topic := range record.Topics {
		ids[topic.ID], names[topic.Name] = true, true
	}
	for _, item := range items {
		_, topic := splitOffsetsKey(item.Key)
		id, _, _ := strings.Cut(strings.TrimPrefix(item.Key, producersPrefix), "/")
		switch opening := record.State == ImportOpening; {
		case strings.HasPrefix(item.Key, producersPrefix) && ids[id]:
			err = m.put(ctx, item, true)
		case opening && strings.HasPrefix(item.Key, offsetsPrefix) && names[topic]:
			err = m.put(ctx, item, true) // nobody has read of that topic here
		case opening && strings.HasPrefix(item.Key, groupPrefix):
			err = m.put(ctx, item, false)
		case opening && item.Key == producerIDsKey:
			err = m.raiseProducerIDs(ctx, item)
		}
		if err != nil {
			return fmt.Errorf("import %q: %w", item.Key, err)
		}
	}
	return nil
}

// put writes an item; one that is there stays, unless it is to be replaced.
func (m *Import) put(ctx context.Context, item Item, replace bool) error {
	for range storeAttempts {
		now, err := getItem(ctx, m.store.Meta(), item.Key)
		if err != nil {
			return err
		}
		if now.Revision != 0 && (!replace || bytes.Equal(now.Value, item.Value)) {
			return nil
		}
		if _, err = m.store.Meta().Put(ctx, item.Key, item.Value, now.Revision); err == nil || !uncertain(err) {
			return err
		}
		if err := m.store.Meta().Sync(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w, %d times", ErrConflict, storeAttempts)
}

// raiseProducerIDs makes the next id of a producer at least that of the item.
func (m *Import) raiseProducerIDs(ctx context.Context, item Item) error {
	want, err := strconv.ParseInt(string(item.Value), 10, 64)
	if err != nil {
		return err
	}
	meta := m.store.Meta()
	for range storeAttempts {
		now, err := getItem(ctx, meta, producerIDsKey)
		if err != nil {
			return err
		}
		if now.Revision != 0 {
			next, err := strconv.ParseInt(string(now.Value), 10, 64)
			if err != nil || next >= want {
				return err
			}
		}
		if _, err = meta.Put(ctx, producerIDsKey, item.Value, now.Revision); err == nil || !uncertain(err) {
			return err
		}
		if err := meta.Sync(ctx); err != nil { // somebody has taken ids
			return err
		}
	}
	return fmt.Errorf("%w, %d times", ErrConflict, storeAttempts)
}

// Commit ends the copying of logs. The other store must be fenced, and the inventory
// be of after that. ErrConflict if a log is not all there: copy it, and try again.
// After it the import cannot be given up.
func (m *Import) Commit(ctx context.Context, run int64, inventory Inventory) error {
	source := inventory.Cluster
	record, revision, err := m.of(ctx, source, run, ImportCopying)
	if err != nil {
		return err
	}
	if err := m.conflicts(ctx, inventory); err != nil {
		return err
	}
	if len(inventory.Topics) != len(record.Topics) {
		return fmt.Errorf("%w: %d topics were planned, %d are there", ErrConflict, len(record.Topics), len(inventory.Topics))
	}
	for n, topic := range inventory.Topics {
		planned := &record.Topics[n]
		if topic.Name != planned.Name || topic.ID != planned.ID || topic.Delays != planned.Delays || topic.Partitions != len(planned.Replicas) {
			return fmt.Errorf("%w: topic %s has changed since it was planned", ErrConflict, topic.Name)
		}
		for _, log := range topic.Logs {
			if err := m.complete(ctx, source, run, log); err != nil {
				return err
			}
			if strings.HasPrefix(log.Name, recordsPrefix) {
				planned.Epochs = append(planned.Epochs, log.End.Mark.Epoch)
			}
		}
		if len(planned.Epochs) != len(planned.Replicas) {
			return fmt.Errorf("%w: of topic %s there are logs of %d partitions, want %d", ErrConflict, topic.Name, len(planned.Epochs), len(planned.Replicas))
		}
	}
	record.State = ImportOpening
	_, err = m.write(ctx, source, record, revision)
	return err
}

// complete returns an ErrConflict unless a log is what it was in the other store.
func (m *Import) complete(ctx context.Context, source string, run int64, want InventoryLog) error {
	has, err := m.Log(ctx, source, run, want.Name, want.First, false)
	if err != nil {
		return err
	}
	if has.Last != want.Last || has.End != want.End {
		return fmt.Errorf("%w: log %s ends with entry %d here, and with %d there", ErrConflict, want.Name, has.Last, want.Last)
	}
	if has.First < want.First { // it was trimmed there since it was copied
		return m.importing(want.Name).log.Trim(ctx, want.First)
	}
	return nil
}

// Open makes the topics known, with their items in the other store's metadata, and
// returns where clients find them. ErrTopicExists if somebody has made one of that name
// since: it must be deleted.
func (m *Import) Open(ctx context.Context, source string, run int64, topics []Item) ([]Address, error) {
	record, revision, err := m.of(ctx, source, run, ImportOpening, ImportOpen)
	if err != nil {
		return nil, err
	}
	if record.State == ImportOpening {
		if err := m.reclaim(ctx); err != nil {
			return nil, err
		}
		if err := m.openTopics(ctx, record, topics); err != nil {
			return nil, err
		}
		record.State = ImportOpen
		if _, err := m.write(ctx, source, record, revision); err != nil {
			return nil, err
		}
		m.mu.Lock()
		clear(m.logs)
		m.mu.Unlock()
		if m.store.Cluster() != nil {
			m.awaitLeaders(ctx, record)
		}
	}
	return m.addresses(ctx)
}

// openTopics puts the topics of an import into the catalog: views after what they
// show.
func (m *Import) openTopics(ctx context.Context, record importRecord, topics []Item) error {
	items := map[string]Item{}
	for _, item := range topics {
		items[item.Key] = item
	}
	for _, views := range []bool{false, true} {
		for _, topic := range record.Topics {
			item, ok := items[topicsPrefix+topic.Name]
			if !ok {
				return fmt.Errorf("%w: the item of topic %s is missing", ErrNotFound, topic.Name)
			}
			stored, err := readTopicRecord(item)
			if err != nil {
				return err
			}
			if stored.ID != topic.ID || len(stored.Partitions) != len(topic.Replicas) {
				return fmt.Errorf("%w: the item of topic %s is of another", ErrConflict, topic.Name)
			}
			if views != (stored.Settings[SettingViewOf] != "") {
				continue
			}
			for number := range stored.Partitions {
				p := &stored.Partitions[number]
				p.Replicas, p.Leader, p.Elect = topic.Replicas[number], 0, 0
				p.Epoch = max(p.Epoch, topic.Epochs[number])
			}
			if err := m.openTopic(ctx, item.Key, stored); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Import) openTopic(ctx context.Context, key string, record topicRecord) error {
	value, err := json.Marshal(record)
	if err != nil {
		return err
	}
	_, err = m.store.Meta().Put(ctx, key, value, 0)
	if err == nil || !uncertain(err) {
		return err
	}
	if err := m.store.Meta().Sync(ctx); err != nil {
		return err
	}
	item, err := m.store.Meta().Get(ctx, key)
	if err != nil {
		return err
	}
	if there, err := readTopicRecord(item); err != nil || there.ID == record.ID {
		return err
	}
	return fmt.Errorf("%w: %q was made in the cluster meanwhile; delete it there, and try again", ErrTopicExists, key[len(topicsPrefix):])
}

// openingTopics calls each with the topics that imports are about to open: they are not
// in the catalog yet, and groups have offsets in them.
func openingTopics(ctx context.Context, meta Meta, each func(topic string)) error {
	items, err := meta.List(ctx, importsPrefix)
	if err != nil {
		return err
	}
	for _, item := range items {
		var record importRecord
		if err := json.Unmarshal(item.Value, &record); err != nil {
			return fmt.Errorf("metadata %q: %w", item.Key, err)
		}
		if record.State != ImportOpening {
			continue
		}
		for _, topic := range record.Topics {
			each(topic.Name)
		}
	}
	return nil
}

// reclaim has the coordinators of groups read their groups again: each slot is given up
// in their name, so that they claim it anew, and it is waited for that.
func (m *Import) reclaim(ctx context.Context) error {
	meta := m.store.Meta()
	changed := make(chan struct{}, 1)
	cancel := meta.Watch(slotPrefix, func() { signal(changed) })
	defer cancel()
	ctx, stop := context.WithTimeoutCause(ctx, reclaimMax, errors.New("the coordinators of groups have not claimed them"))
	defer stop()
	if err := meta.Sync(ctx); err != nil {
		return err
	}
	slots, err := listSlots(ctx, meta)
	if err != nil {
		return err
	}
	var given [groupSlots]uint64 // the revision after which a slot must be claimed
	for _, item := range slots {
		if item.revision == 0 {
			continue // nobody has read it
		}
		given[item.slot], err = putSlot(ctx, meta, item, slotRecord{Epoch: item.record.Epoch})
		if errors.Is(err, ErrConflict) {
			// Whoever has claimed it just now reads what is there now.
			given[item.slot], err = item.revision, nil
		}
		if err != nil {
			return err
		}
	}
	for {
		if slots, err = listSlots(ctx, meta); err != nil {
			return err
		}
		if !slices.ContainsFunc(slots[:], func(item slotItem) bool {
			return given[item.slot] != 0 && (item.revision <= given[item.slot] || item.record.Node == 0)
		}) {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Abort gives up an import, and returns the number of the attempt that did: what was
// copied stays until Clean. ErrImported if it is too late.
func (m *Import) Abort(ctx context.Context, source string) (ImportStatus, error) {
	var status ImportStatus
	id, err := loadClusterID(ctx, m.store.Meta())
	if err != nil {
		return status, err
	}
	for range storeAttempts {
		if err := m.store.Meta().Sync(ctx); err != nil {
			return status, err
		}
		record, revision, err := m.read(ctx, source)
		if err != nil {
			return status, err
		}
		if record.State == ImportOpening || record.State == ImportOpen {
			return status, fmt.Errorf("%w: the import of %s is %s; run it again to its end", ErrImported, source, record.State)
		}
		record.State = ImportAborted
		record.Run++
		_, err = m.write(ctx, source, record, revision)
		if err == nil {
			return ImportStatus{Cluster: id, Run: record.Run, State: record.State}, nil
		}
		if !uncertain(err) {
			return status, err
		}
	}
	return status, fmt.Errorf("import of %s: %w, %d times", source, ErrConflict, storeAttempts)
}

// Clean removes what an import has copied that was given up.
func (m *Import) Clean(ctx context.Context, source string, run int64) error {
	record, revision, err := m.of(ctx, source, run, ImportAborted)
	if err != nil {
		return err
	}
	if err := m.dropLeft(ctx, record.Topics, nil); err != nil {
		return err
	}
	record.Topics = nil
	_, err = m.write(ctx, source, record, revision)
	return err
}

// dropLeft removes the logs and snapshots of topics, partitions and delays that are
// planned no more.
func (m *Import) dropLeft(ctx context.Context, before, after []importTopic) error {
	kept := map[string]bool{}
	for _, topic := range after {
		for _, log := range topic.logs() {
			kept[log] = true
		}
	}
	for _, topic := range before {
		for _, log := range topic.logs() {
			if kept[log] {
				continue
			}
			m.mu.Lock()
			delete(m.logs, log)
			m.mu.Unlock()
			if err := m.store.DeleteLog(ctx, log); err != nil {
				return err
			}
		}
		if slices.ContainsFunc(after, func(t importTopic) bool { return t.ID == topic.ID }) {
			continue
		}
		snapshots, err := m.store.Meta().List(ctx, producersPrefix+topic.ID+"/")
		if err != nil {
			return err
		}
		for _, item := range snapshots {
			if err := removeItem(ctx, &lease{meta: m.store.Meta()}, item.Key, item.Revision); err != nil {
				return err
			}
		}
	}
	return nil
}
