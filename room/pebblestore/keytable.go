package pebblestore

import (
	"hash/maphash"

	"github.com/sluice-project/sluice/room"
)

// keyShards is how many tables there are, so that none is large when it grows.
const keyShards = 256

// keyTable finds the number of a visitor by key. It holds numbers only, about 12 bytes
// for each, and asks the pages for the keys; a map of both takes five times as much.
type keyTable struct {
	keyOf  func(number int64) room.Key
	seed   maphash.Seed
	shards []keyShard // nil: nobody has a key
}

// keyShard is a hash table with linear probing; 0 is an empty slot.
type keyShard struct {
	slots []int64 // a power of two
	used  int
}

func newKeyTable(keyOf func(int64) room.Key) keyTable {
	return keyTable{keyOf: keyOf, seed: maphash.MakeSeed()}
}

// find returns the number of a key; 0 if nobody has it.
func (t *keyTable) find(key room.Key) int64 {
	if t.shards == nil {
		return 0
	}
	s, hash := t.shard(key)
	if s.used == 0 {
		return 0
	}
	for i := hash & s.mask(); s.slots[i] != 0; i = (i + 1) & s.mask() {
		if t.keyOf(s.slots[i]) == key {
			return s.slots[i]
		}
	}
	return 0
}

// add adds a visitor. KeyOf must return its key, which no other visitor has.
func (t *keyTable) add(number int64) {
	if t.shards == nil {
		t.shards = make([]keyShard, keyShards)
	}
	s, hash := t.shard(t.keyOf(number))
	if (s.used+1)*4 > len(s.slots)*3 {
		old := s.slots
		s.slots = make([]int64, max(8, 2*len(old)))
		for _, n := range old {
			if n != 0 {
				_, hash := t.shard(t.keyOf(n))
				s.put(n, hash)
			}
		}
	}
	s.put(number, hash)
	s.used++
}

// remove removes a visitor, for which keyOf must still return its key.
func (t *keyTable) remove(number int64) {
	if t.shards == nil {
		return
	}
	s, hash := t.shard(t.keyOf(number))
	if s.used == 0 {
		return
	}
	at := hash & s.mask()
	for ; s.slots[at] != number; at = (at + 1) & s.mask() {
		if s.slots[at] == 0 {
			return
		}
	}
	s.used--
	// Those behind it move up, unless they would come before where they belong.
	for next := (at + 1) & s.mask(); s.slots[next] != 0; next = (next + 1) & s.mask() {
		_, hash := t.shard(t.keyOf(s.slots[next]))
		if (next-hash)&s.mask() >= (next-at)&s.mask() {
			s.slots[at] = s.slots[next]
			at = next
		}
	}
	s.slots[at] = 0
}

func (t *keyTable) shard(key room.Key) (*keyShard, uint64) {
	hash := maphash.Bytes(t.seed, key[:])
	return &t.shards[hash%keyShards], hash / keyShards
}

func (s *keyShard) mask() uint64 { return uint64(len(s.slots) - 1) }

func (s *keyShard) put(number int64, hash uint64) {
	i := hash & s.mask()
	for s.slots[i] != 0 {
		i = (i + 1) & s.mask()
	}
	s.slots[i] = number
}
