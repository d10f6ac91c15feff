package natsstore

import (
	"bytes"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/sluice-project/sluice/topic"
)

// metaState is what the entries of the metadata up to one of them say.
type metaState struct {
	items map[string]metaItem
	last  uint64 // the entry
	from  uint64 // the first entry that counts
	bytes uint64 // the data of all entries from there on
	live  uint64 // what all items take as changes
}

// metaItem is a key's value, and the entry that has it.
type metaItem struct {
	value        []byte
	revision, at uint64
}

func (i metaItem) size(key string) uint64 { return uint64(len(key)+len(i.value)) + changeOverhead }

// apply makes the state what the next entry says, and returns the keys that it
// changes. Data that is refused changes nothing.
func (s *metaState) apply(entry topic.Entry) (keys []string, err error) {
	var changes []stored
	head, err := readChanges(entry.Data, func(change stored) { changes = append(changes, change) })
	if err != nil {
		return nil, fmt.Errorf("entry %d: %w", entry.Sequence, err)
	}
	for _, change := range changes {
		if change.Revision == 0 { // otherwise it was only carried to the log's end
			keys = append(keys, change.Key)
		}
		if old, exists := s.items[change.Key]; exists {
			s.live -= old.size(change.Key)
			delete(s.items, change.Key)
		}
		if change.Delete {
			continue
		}
		item := metaItem{value: bytes.Clone(change.Value), revision: change.Revision, at: entry.Sequence}
		if item.revision == 0 {
			item.revision = entry.Sequence
		}
		s.items[change.Key] = item
		s.live += item.size(change.Key)
	}
	s.last, s.from, s.bytes = entry.Sequence, head.From, head.Bytes+uint64(len(entry.Data))
	return keys, nil
}

// difference returns the keys that another state has not, or with another revision,
// or more of.
func (s *metaState) difference(other *metaState) []string {
	var keys []string
	for key, item := range s.items {
		if other.items[key].revision != item.revision {
			keys = append(keys, key)
		}
	}
	for key := range other.items {
		if _, exists := s.items[key]; !exists {
			keys = append(keys, key)
		}
	}
	return keys
}

// list returns the items whose key begins with a prefix, by key.
func (s *metaState) list(prefix string) []topic.Item {
	items := []topic.Item{}
	for key, item := range s.items {
		if strings.HasPrefix(key, prefix) {
			items = append(items, topic.Item{Key: key, Value: item.copy(), Revision: item.revision})
		}
	}
	slices.SortFunc(items, func(a, b topic.Item) int { return strings.Compare(a.Key, b.Key) })
	return items
}

func (i metaItem) copy() []byte { return append([]byte{}, i.value...) }

// decision decides changes one after another, and collects those that are made.
type decision struct {
	state *metaState
	// changed has the keys that a change before set or deleted.
	changed map[string]bool // whether it exists since
	data    []byte
	empty   bool
}

// decide begins an entry with a head, into a buffer that is used again.
func (s *metaState) decide(buffer []byte, head changesHead) *decision {
	return &decision{state: s, changed: map[string]bool{}, data: appendHead(buffer[:0], head), empty: true}
}

// add takes a change if its key has that revision, 0 for none, and so have those of
// the guards; otherwise it says why not.
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

// revision returns a key's, 0 if it does not exist. What an earlier change has set
// has one that nobody knows yet.
func (d *decision) revision(key string) (revision uint64, known bool) {
	if exists, changed := d.changed[key]; changed {
		return 0, !exists
	}
	return d.state.items[key].revision, true
}

// carry takes a change that needs no decision.
func (d *decision) carry(change stored) {
	d.data, d.empty = appendChange(d.data, change), false
}

// cleaning is one round of writing anew, at the log's end, what only entries
// before have: after it these can go.
type cleaning struct {
	upTo  uint64   // the last entry before
	keys  []string // those to look at
	bytes uint64   // the data of all entries after upTo
}

// clean begins a round.
func (s *metaState) clean() *cleaning {
	return &cleaning{upTo: s.last, keys: slices.Collect(maps.Keys(s.items))}
}

// next takes, of the keys that are left, so many that the entry has about that
// many bytes. The last one moves the state's begin.
func (c *cleaning) next(s *metaState, buffer []byte, size int) []byte {
	d := s.decide(buffer, changesHead{From: s.from, Bytes: s.bytes})
	for len(c.keys) > 0 && len(d.data) < size {
		key := c.keys[0]
		item, exists := s.items[key]
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
