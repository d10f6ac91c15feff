package pebblestore

import (
	"encoding/binary"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

// The table finds the same as a map, also when most visitors are in one shard.
func TestKeyTableIsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		keys := map[int64]room.Key{}
		numbers := map[room.Key]int64{}
		table := newKeyTable(func(number int64) room.Key { return keys[number] })
		key := rapid.Custom(func(t *rapid.T) (key room.Key) {
			binary.BigEndian.PutUint16(key[:], rapid.Uint16Range(1, 400).Draw(t, "key"))
			return key
		})
		next := int64(0)
		t.Repeat(map[string]func(*rapid.T){
			"add many": func(t *rapid.T) {
				for range rapid.IntRange(1, 100).Draw(t, "n") {
					k := key.Draw(t, "key")
					if numbers[k] == 0 {
						next++
						keys[next], numbers[k] = k, next
						table.add(next)
					}
				}
			},
			"remove": func(t *rapid.T) {
				k := key.Draw(t, "key")
				if number := numbers[k]; number != 0 {
					table.remove(number)
					delete(numbers, k)
					delete(keys, number)
				}
			},
			"": func(t *rapid.T) {
				used := 0
				for i := range table.shards {
					used += table.shards[i].used
				}
				if used != len(numbers) {
					t.Fatalf("the table has %d visitors, want %d", used, len(numbers))
				}
				for n := range uint16(401) {
					var k room.Key
					binary.BigEndian.PutUint16(k[:], n)
					if got := table.find(k); got != numbers[k] {
						t.Fatalf("key %d is number %d, want %d", n, got, numbers[k])
					}
				}
			},
		})
	})
}
