package filestore

import (
	"encoding/binary"
	"maps"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

// The keys of the database. docs/formats/topic-files.md describes their values.
const (
	prefixItem = 'k' // the metadata, by key
	prefixLog  = 'l' // the logs, by name
)

var (
	keyFormat   = []byte("f")
	keyRevision = []byte("r")
)

const metaFormat = 1

// logRecord is what the database has of a log.
type logRecord struct {
	// id is part of its folder's name. A log that is made again under the same name has
	// another one.
	id uint64
	// first is its first sequence.
	first uint64
}

// catalog has the logs that exist.
type catalog struct {
	store *Store

	mu   sync.Mutex
	logs map[string]logRecord
	id   uint64 // the last one given
}

func loadCatalog(s *Store) (*catalog, error) {
	c := &catalog{store: s, logs: map[string]logRecord{}}
	err := pebblekv.Scan(s.db, []byte{prefixLog}, []byte{prefixLog + 1}, func(key, value []byte) (bool, error) {
		r := pebblekv.Reader{Rest: value}
		record := logRecord{id: r.Uvarint(), first: r.Uvarint()}
		if !r.Whole() {
			return false, pebblekv.Corrupt(key, "it is not the record of a log")
		}
		c.logs[string(key[1:])] = record
		c.id = max(c.id, record.id)
		return true, nil
	})
	return c, err
}

func (c *catalog) get(name string) (record logRecord, exists bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	record, exists = c.logs[name]
	return record, exists
}

// newID returns an id that no log has. Its folder may be left of a log that was deleted or not
// made whole: the start removes those.
func (c *catalog) newID() uint64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.id++
	return c.id
}

// put stores the record of a log, durably.
func (c *catalog) put(name string, record logRecord) error {
	batch := c.store.db.NewBatch()
	value := binary.AppendUvarint(binary.AppendUvarint(nil, record.id), record.first)
	if err := batch.Set(logKey(name), value, nil); err != nil {
		return err
	}
	if err := c.store.commit(batch); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logs[name] = record
	return nil
}

// remove removes the record of a log, durably.
func (c *catalog) remove(name string) error {
	batch := c.store.db.NewBatch()
	if err := batch.Delete(logKey(name), nil); err != nil {
		return err
	}
	if err := c.store.commit(batch); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.logs, name)
	return nil
}

// all returns a copy of all records, by name.
func (c *catalog) all() map[string]logRecord {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.logs)
}

func logKey(name string) []byte { return append([]byte{prefixLog}, name...) }

// removeOrphans removes folders of logs that were deleted, or not made whole.
func (c *catalog) removeOrphans() error {
	s := c.store
	dir := s.fs.PathJoin(s.dir, logsDir)
	names, err := s.fs.List(dir)
	if err != nil {
		return err
	}
	known := map[string]bool{}
	for name, record := range c.logs {
		known[s.logDir(name, record.id)] = true
	}
	for _, name := range names {
		if path := s.fs.PathJoin(dir, name); !known[path] {
			if err := s.fs.RemoveAll(path); err != nil {
				return err
			}
		}
	}
	return nil
}

// commit applies a batch and waits until it is durable. After an error the store has failed.
func (s *Store) commit(batch *pebble.Batch) error {
	s.frozen.RLock()
	defer s.frozen.RUnlock()
	err := s.Err()
	if err == nil {
		if err = pebblekv.Apply(s.db, batch); err == nil {
			err = batch.SyncWait()
		}
		if err != nil {
			s.fail(err)
		}
	}
	if err != nil {
		return err
	}
	return batch.Close()
}
