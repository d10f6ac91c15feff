package broker

import (
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
)

// TestTails compares tails with a list of all entries in the order in which they were pushed.
func TestTails(t *testing.T) {
	type kept struct {
		of       int
		sequence uint64
	}
	rapid.Check(t, func(t *rapid.T) {
		all := &tails{limit: 8 * entryOverhead}
		each := []*tail{{all: all}, {all: all}, {all: all}}
		var model []kept
		for sequence := range uint64(rapid.IntRange(1, 60).Draw(t, "steps")) {
			i := rapid.IntRange(0, len(each)-1).Draw(t, "tail")
			if rapid.IntRange(0, 4).Draw(t, "clear") == 0 {
				each[i].clear()
				model = slices.DeleteFunc(model, func(k kept) bool { return k.of == i })
				continue
			}
			if rapid.IntRange(0, 4).Draw(t, "large") == 0 {
				each[i].push(topic.Entry{Sequence: sequence, Data: make([]byte, all.limit/largestOf+1)})
				model = slices.DeleteFunc(model, func(k kept) bool { return k.of == i })
				continue
			}
			each[i].push(topic.Entry{Sequence: sequence})
			model = append(model, kept{i, sequence})
			model = model[max(0, len(model)-8):]
			for i, tail := range each {
				var got, want []uint64
				for _, entry := range tail.entries {
					got = append(got, entry.Sequence)
				}
				for _, k := range model {
					if k.of == i {
						want = append(want, k.sequence)
					}
				}
				if !slices.Equal(got, want) {
					t.Fatalf("tail %d has %v, want %v", i, got, want)
				}
			}
			if all.bytes != int64(len(model))*entryOverhead || len(all.order) > 2*len(model) {
				t.Fatalf("%d bytes and %d places for %d entries", all.bytes, len(all.order), len(model))
			}
		}
	})
}
