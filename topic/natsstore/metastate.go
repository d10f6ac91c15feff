package natsstore

import (
	"bytes"
	"fmt"
	"iter"
	"slices"
	"strings"

	"github.com/RaduBerinde/btreemap"

	"github.com/sluice-project/sluice/topic"
)

// metaState is the metadata after one of its entries.
type metaState struct {
	items metaItems
	last  uint64 // the entry
	from  uint64 // the first entry that counts
	bytes uint64 // the data of all entries from there on
	live  uint64 // the size of all items as changes
}

// metaItems holds the items in the order of their keys, so that those of a prefix cost no more
// than themselves.
type metaItems struct {
	*btreemap.BTreeMap[string, metaItem]
}

// itemsDegree is the degree of the tree: nodes have up to twice as many items.
const itemsDegree = 16

func newMetaItems() metaItems {
	return metaItems{btreemap.New[string, metaItem](itemsDegree, strings.Compare)}
}

func (i metaItems) get(key string) (metaItem, bool) {
	_, item, exists := i.Get(key)
	return item, exists
}

// all returns all items in order.
func (i metaItems) all() iter.Seq2[string, metaItem] {
	return i.Ascend(btreemap.Min[string](), btreemap.Max[string]())
}

// of returns the items whose keys begin with a prefix, in order.
func (i metaItems) of(prefix string) iter.Seq2[string, metaItem] {
	return func(yield func(string, metaItem) bool) {
		for key, item := range i.Ascend(btreemap.GE(prefix), btreemap.Max[string]()) {
			if !strings.HasPrefix(key, prefix) || !yield(key, item) {
				return
			}
		}
	}
}

// metaItem is a key's value and the entry that has it.
type metaItem struct {
	value        []byte
	revision, at uint64
}

func (i metaItem) size(key string) uint64 { return uint64(len(key)+len(i.value)) + changeOverhead }

// apply applies the next entry and returns the keys that it changes. An entry that is
// refused changes nothing.
func (s *metaState) apply(entry topic.Entry) (keys []string, err error) {
	var changes []stored
	head, err := readChanges(entry.Data, func(change stored) { changes = append(changes, change) })
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", entry.Sequence, err)
	}
	for _, change := range changes {
		if change.Revision == 0 { // otherwise cleaning has copied it
			keys = append(keys, change.Key)
		}
		if _, old, exists := s.items.Delete(change.Key); exists {
			s.live -= old.size(change.Key)
		}
		if change.Delete {
			continue
		}
		item := metaItem{value: bytes.Clone(change.Value), revision: change.Revision, at: entry.Sequence}
		if item.revision == 0 {
			item.revision = entry.Sequence
		}
		s.items.ReplaceOrInsert(change.Key, item)
		s.live += item.size(change.Key)
	}
	s.last, s.from, s.bytes = entry.Sequence, head.From, head.Bytes+uint64(len(entry.Data))
	return keys, nil
}

// difference returns the keys that only one of two states has, or with different revisions.
func (s *metaState) difference(other *metaState) []string {
	var keys []string
	for key, item := range s.items.all() {
		if now, _ := other.items.get(key); now.revision != item.revision {
			keys = append(keys, key)
		}
	}
	for key := range other.items.all() {
		if !s.items.Has(key) {
			keys = append(keys, key)
		}
	}
	return keys
}

// list returns the items whose key begins with prefix, sorted by key.
func (s *metaState) list(prefix string) []topic.Item {
	items := []topic.Item{}
	for key, item := range s.items.of(prefix) {
		items = append(items, topic.Item{Key: key, Value: item.copy(), Revision: item.revision})
	}
	return items
}

func (i metaItem) copy() []byte { return append([]byte{}, i.value...) }

// decision decides on changes in order, and collects those that are made.
type decision struct {
	state *metaState
	// changed has the keys that an earlier change set (true) or deleted (false).
	changed map[string]bool
	data    []byte
	empty   bool
}

// decide starts an entry with a head, in a buffer that is reused.
func (s *metaState) decide(buffer []byte, head changesHead) *decision {
	return &decision{state: s, changed: map[string]bool{}, data: appendHead(buffer[:0], head), empty: true}
}

// add adds a change if its key has that revision, 0 if it does not exist, and the guards
// hold. Otherwise it returns the reason.
func (d *decision) add(change stored, revision uint64, guards ...topic.Guard) error {
	has, known := d.revision(change.Key)
	switch {
	case known && has == 0 && change.Delete:
		return fmt.Errorf("%w: key %q", topic.ErrNotFound, change.Key)
	case !known || has != revision:
		return fmt.Errorf("%w: key %q", topic.ErrConflict, change.Key)
	}
	for _, g := range guards {
		if has, known := d.revision(g.Key); !known || has != g.Revision {
			return fmt.Errorf("%w: key %q, which guards %q", topic.ErrConflict, g.Key, change.Key)
		}
	}
	d.changed[change.Key] = !change.Delete
	d.carry(change)
	return nil
}

// revision returns a key's revision, 0 if it does not exist. The revision of a key that an
// earlier change has set is not known yet.
func (d *decision) revision(key string) (revision uint64, known bool) {
	if exists, changed := d.changed[key]; changed {
		return 0, !exists
	}
	item, _ := d.state.items.get(key)
	return item.revision, true
}

// carry adds a change that needs no decision.
func (d *decision) carry(change stored) {
	d.data, d.empty = appendChange(d.data, change), false
}

// cleaning is one round that copies items of old entries to the log's end, so that those
// entries can be removed.
type cleaning struct {
	upTo  uint64   // the last entry before the round
	keys  []string // those to copy, if they are still there
	bytes uint64   // the data of all entries after upTo
}

// clean starts a round.
func (s *metaState) clean() *cleaning {
	keys := make([]string, 0, s.items.Len())
	for key := range s.items.all() {
		keys = append(keys, key)
	}
	return &cleaning{upTo: s.last, keys: keys}
}

// next returns an entry of about size bytes with the next keys. The last one advances the
// first entry that counts.
func (c *cleaning) next(s *metaState, buffer []byte, size int) []byte {
	d := s.decide(buffer, changesHead{From: s.from, Bytes: s.bytes})
	for len(c.keys) > 0 && len(d.data) < size {
		key := c.keys[0]
		item, exists := s.items.get(key)
		if exists && item.at <= c.upTo {
			if !d.empty && len(d.data)+int(item.size(key)) > size {
				return d.data
			}
			d.carry(stored{Key: key, Value: item.value, Revision: item.revision})
		}
		c.keys = c.keys[1:]
	}
	if len(c.keys) > 0 {
		return d.data
	}
	head := appendHead(nil, changesHead{From: c.upTo + 1, Bytes: c.bytes})
	old := len(appendHead(nil, changesHead{From: s.from, Bytes: s.bytes}))
	return slices.Replace(d.data, 0, old, head...)
}
