package migrate

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/txn"
)

// reclaimMax bounds how long opening waits until coordinators have read the imported
// records of their groups.
const reclaimMax = 30 * time.Second

// Put writes items of the other store's metadata: before Commit snapshots of producers,
// after it groups, their settings, offsets, transactions and the next id of a producer. It skips items of topics that
// are not in the import. The items of topics themselves are passed to Open.
func (m *Import) Put(ctx context.Context, source string, run int64, items []topic.Item) error {
	record, _, err := m.of(ctx, source, run, catalog.ImportCopying, catalog.ImportOpening)
	if err != nil {
		return err
	}
	ids, names := map[string]bool{}, map[string]bool{}
	for _, topic := range record.Topics {
		ids[topic.ID], names[topic.Name] = true, true
	}
	for _, item := range items {
		_, topic := group.SplitOffsetsKey(item.Key)
		id, _, _ := strings.Cut(strings.TrimPrefix(item.Key, catalog.ProducersPrefix), "/")
		switch opening := record.State == catalog.ImportOpening; {
		case strings.HasPrefix(item.Key, catalog.ProducersPrefix) && ids[id]:
			err = m.put(ctx, item, true)
		case opening && strings.HasPrefix(item.Key, group.OffsetsPrefix) && names[topic]:
			err = m.put(ctx, item, true) // no broker of the cluster has read that topic
		case opening && slices.ContainsFunc([]string{group.OwnersPrefix, catalog.GroupSettingsPrefix, group.GroupPrefix, txn.Prefix}, func(prefix string) bool { return strings.HasPrefix(item.Key, prefix) }):
			err = m.put(ctx, item, false)
		case opening && item.Key == catalog.ProducerIDsKey:
			err = m.raiseProducerIDs(ctx, item)
		}
		if err != nil {
			return fmt.Errorf("import %q: %w", item.Key, err)
		}
	}
	return nil
}

// put writes an item; an existing one is replaced only if replace is set.
func (m *Import) put(ctx context.Context, item topic.Item, replace bool) error {
	for range catalog.StoreAttempts {
		now, err := catalog.Get(ctx, m.store.Meta(), item.Key)
		if err != nil {
			return err
		}
		if now.Revision != 0 && (!replace || bytes.Equal(now.Value, item.Value)) {
			return nil
		}
		if _, err = m.store.Meta().Put(ctx, item.Key, item.Value, now.Revision); err == nil || !catalog.Uncertain(err) {
			return err
		}
		if err := m.store.Meta().Sync(ctx); err != nil {
			return err
		}
	}
	return fmt.Errorf("%w, %d times", topic.ErrConflict, catalog.StoreAttempts)
}

// raiseProducerIDs raises the next id of a producer to at least that of the item.
func (m *Import) raiseProducerIDs(ctx context.Context, item topic.Item) error {
	want, err := strconv.ParseInt(string(item.Value), 10, 64)
	if err != nil {
		return err
	}
	meta := m.store.Meta()
	for range catalog.StoreAttempts {
		now, err := catalog.Get(ctx, meta, catalog.ProducerIDsKey)
		if err != nil {
			return err
		}
		if now.Revision != 0 {
			next, err := strconv.ParseInt(string(now.Value), 10, 64)
			if err != nil || next >= want {
				return err
			}
		}
		if _, err = meta.Put(ctx, catalog.ProducerIDsKey, item.Value, now.Revision); err == nil || !catalog.Uncertain(err) {
			return err
		}
		if err := meta.Sync(ctx); err != nil { // a broker has claimed ids
			return err
		}
	}
	return fmt.Errorf("%w, %d times", topic.ErrConflict, catalog.StoreAttempts)
}

// Commit ends the copying of logs. The other store must have been fenced before the
// inventory was made. ErrConflict if a log is incomplete: copy it, and try again. After
// Commit the import cannot be aborted.
func (m *Import) Commit(ctx context.Context, run int64, inventory Inventory) error {
	source := inventory.Cluster
	record, revision, err := m.of(ctx, source, run, catalog.ImportCopying)
	if err != nil {
		return err
	}
	if err := m.conflicts(ctx, inventory); err != nil {
		return err
	}
	if len(inventory.Topics) != len(record.Topics) {
		return fmt.Errorf("%w: %d topics were planned, %d are there", topic.ErrConflict, len(record.Topics), len(inventory.Topics))
	}
	for n, t := range inventory.Topics {
		planned := &record.Topics[n]
		if t.Name != planned.Name || t.ID != planned.ID || t.Delays != planned.Delays || t.Partitions != len(planned.Replicas) {
			return fmt.Errorf("%w: topic %s has changed since it was planned", topic.ErrConflict, t.Name)
		}
		for _, log := range t.Logs {
			if err := m.complete(ctx, source, run, log); err != nil {
				return err
			}
			if strings.HasPrefix(log.Name, catalog.RecordsPrefix) {
				planned.Epochs = append(planned.Epochs, log.End.Mark.Epoch)
			}
		}
		if len(planned.Epochs) != len(planned.Replicas) {
			return fmt.Errorf("%w: of topic %s there are logs of %d partitions, want %d", topic.ErrConflict, t.Name, len(planned.Epochs), len(planned.Replicas))
		}
	}
	record.State = catalog.ImportOpening
	_, err = m.write(ctx, source, record, revision)
	return err
}

// complete returns an ErrConflict unless a log equals that of the other store.
func (m *Import) complete(ctx context.Context, source string, run int64, want InventoryLog) error {
	has, err := m.Log(ctx, source, run, want.Name, want.First, false)
	if err != nil {
		return err
	}
	if has.Last != want.Last || has.End != want.End {
		return fmt.Errorf("%w: log %s ends with entry %d here, and with %d there", topic.ErrConflict, want.Name, has.Last, want.Last)
	}
	if has.First < want.First { // trimmed in the source since it was copied
		return m.importing(want.Name).log.Trim(ctx, want.First)
	}
	return nil
}

// Open opens the topics, with their items in the other store's metadata, and returns
// their addresses for clients. ErrTopicExists if a topic of that name was created in the
// meantime: it must be deleted.
func (m *Import) Open(ctx context.Context, source string, run int64, topics []topic.Item) ([]catalog.Address, error) {
	record, revision, err := m.of(ctx, source, run, catalog.ImportOpening, catalog.ImportOpen)
	if err != nil {
		return nil, err
	}
	if record.State == catalog.ImportOpening {
		if err := m.reclaim(ctx); err != nil {
			return nil, err
		}
		if err := m.openTopics(ctx, record, topics); err != nil {
			return nil, err
		}
		record.State = catalog.ImportOpen
		if _, err := m.write(ctx, source, record, revision); err != nil {
			return nil, err
		}
		m.mu.Lock()
		clear(m.logs)
		m.mu.Unlock()
	}
	nodes, _, err := m.addresses(ctx)
	if err == nil && len(nodes) > 0 {
		m.awaitLeaders(ctx, record)
	}
	return nodes, err
}

// openTopics puts the topics of an import into the catalog: views after their sources.
func (m *Import) openTopics(ctx context.Context, record catalog.Import, topics []topic.Item) error {
	items := map[string]topic.Item{}
	for _, item := range topics {
		items[item.Key] = item
	}
	for _, views := range []bool{false, true} {
		for _, t := range record.Topics {
			item, ok := items[catalog.TopicsPrefix+t.Name]
			if !ok {
				return fmt.Errorf("%w: the item of topic %s is missing", topic.ErrNotFound, t.Name)
			}
			stored, err := catalog.ReadTopic(item)
			if err != nil {
				return err
			}
			if stored.ID != t.ID || len(stored.Partitions) != len(t.Replicas) {
				return fmt.Errorf("%w: the item of topic %s is of another", topic.ErrConflict, t.Name)
			}
			if views != (stored.Settings[topic.SettingViewOf] != "") {
				continue
			}
			for number := range stored.Partitions {
				p := &stored.Partitions[number]
				p.Replicas, p.Leader, p.Elect = t.Replicas[number], 0, 0
				p.Epoch = max(p.Epoch, t.Epochs[number])
			}
			if err := m.openTopic(ctx, item.Key, stored); err != nil {
				return err
			}
		}
	}
	return nil
}

func (m *Import) openTopic(ctx context.Context, key string, record catalog.Topic) error {
	value, err := record.Encode()
	if err != nil {
		return err
	}
	_, err = m.store.Meta().Put(ctx, key, value, 0)
	if err == nil || !catalog.Uncertain(err) {
		return err
	}
	if err := m.store.Meta().Sync(ctx); err != nil {
		return err
	}
	item, err := m.store.Meta().Get(ctx, key)
	if err != nil {
		return err
	}
	if there, err := catalog.ReadTopic(item); err != nil || there.ID == record.ID {
		return err
	}
	return fmt.Errorf("%w: %q was created in the cluster during the migration; delete it there, and try again", topic.ErrTopicExists, key[len(catalog.TopicsPrefix):])
}

// reclaim makes the coordinators of groups read their groups again: it gives up each slot
// in its owner's name, so that the owner claims it again, and waits for that.
func (m *Import) reclaim(ctx context.Context) error {
	meta := m.store.Meta()
	changed := lifecycle.NewSignal()
	cancel := meta.Watch(group.SlotPrefix, changed.Wake)
	defer cancel()
	ctx, stop := context.WithTimeoutCause(ctx, reclaimMax, errors.New("the coordinators of groups have not claimed them"))
	defer stop()
	if err := meta.Sync(ctx); err != nil {
		return err
	}
	slots, err := group.ListSlots(ctx, meta)
	if err != nil {
		return err
	}
	var given [group.SlotCount]uint64 // the revision after which a slot must be claimed
	for _, item := range slots {
		if item.Revision == 0 {
			continue // no broker has read it
		}
		given[item.Slot], err = group.PutSlot(ctx, meta, item, group.SlotRecord{Epoch: item.Record.Epoch})
		if errors.Is(err, topic.ErrConflict) {
			// A node that has claimed it in the meantime reads the present state.
			given[item.Slot], err = item.Revision, nil
		}
		if err != nil {
			return err
		}
	}
	for {
		if slots, err = group.ListSlots(ctx, meta); err != nil {
			return err
		}
		if !slices.ContainsFunc(slots[:], func(item group.SlotItem) bool {
			return given[item.Slot] != 0 && (item.Revision <= given[item.Slot] || item.Record.Node == 0)
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

// Abort aborts an import, and returns the number of the attempt that did so: copied data
// stays until Clean. ErrImported if it is too late.
func (m *Import) Abort(ctx context.Context, source string) (ImportStatus, error) {
	var status ImportStatus
	id, err := catalog.ClusterID(ctx, m.store.Meta())
	if err != nil {
		return status, err
	}
	for range catalog.StoreAttempts {
		if err := m.store.Meta().Sync(ctx); err != nil {
			return status, err
		}
		record, revision, err := m.read(ctx, source)
		if err != nil {
			return status, err
		}
		if record.State == catalog.ImportOpening || record.State == catalog.ImportOpen {
			return status, fmt.Errorf("%w: the import of %s is %s; run it again to its end", ErrImported, source, record.State)
		}
		record.State = catalog.ImportAborted
		record.Run++
		_, err = m.write(ctx, source, record, revision)
		if err == nil {
			return ImportStatus{Cluster: id, Run: record.Run, State: record.State}, nil
		}
		if !catalog.Uncertain(err) {
			return status, err
		}
	}
	return status, fmt.Errorf("import of %s: %w, %d times", source, topic.ErrConflict, catalog.StoreAttempts)
}

// Clean removes the copied data of an aborted import.
func (m *Import) Clean(ctx context.Context, source string, run int64) error {
	record, revision, err := m.of(ctx, source, run, catalog.ImportAborted)
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

// dropLeft removes the logs and snapshots of topics, partitions and delays that are no
// longer planned.
func (m *Import) dropLeft(ctx context.Context, before, after []catalog.ImportTopic) error {
	kept := map[string]bool{}
	for _, topic := range after {
		for _, log := range topic.Logs() {
			kept[log] = true
		}
	}
	for _, topic := range before {
		for _, log := range topic.Logs() {
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
		if slices.ContainsFunc(after, func(t catalog.ImportTopic) bool { return t.ID == topic.ID }) {
			continue
		}
		snapshots, err := m.store.Meta().List(ctx, catalog.ProducersPrefix+topic.ID+"/")
		if err != nil {
			return err
		}
		for _, item := range snapshots {
			if err := group.RemoveItem(ctx, &group.Ownership{Meta: m.store.Meta()}, item.Key, item.Revision); err != nil {
				return err
			}
		}
	}
	return nil
}
