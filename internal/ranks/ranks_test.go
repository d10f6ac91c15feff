package ranks

import (
	"cmp"
	"slices"
	"testing"

	"pgregory.net/rapid"
)

type item struct{ value, number, at int }

// TestHeapsAreInOrder compares a heap with a sorted slice, after random changes.
func TestHeapsAreInOrder(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		compare := func(a, b *item) int { return cmp.Or(cmp.Compare(a.value, b.value), cmp.Compare(a.number, b.number)) }
		heap := New(func(a, b *item) bool { return compare(a, b) < 0 }, func(i *item) *int { return &i.at })
		var all []*item
		for n := range rapid.IntRange(1, 60).Draw(rt, "items") {
			all = append(all, &item{number: n})
		}
		for range rapid.IntRange(1, 200).Draw(rt, "changes") {
			i := rapid.SampledFrom(all).Draw(rt, "item")
			i.value = rapid.IntRange(0, 20).Draw(rt, "value")
			heap.SetIf(i, i.value < 15)
		}
		var want, got []*item
		for _, i := range all {
			if i.at > 0 {
				want = append(want, i)
			}
			if i.at > 0 && heap.Items()[i.at-1] != i {
				rt.Fatalf("item %d is not at %d", i.number, i.at)
			}
		}
		slices.SortFunc(want, compare)
		for w := heap.Walk(); ; {
			i := w.Next()
			if i == nil {
				break
			}
			got = append(got, i)
		}
		if len(want) > 1 && heap.Second() != want[1] {
			rt.Fatalf("the second is %v, want %v", heap.Second(), want[1])
		}
		if !slices.Equal(got, want) || len(want) != len(heap.Items()) || len(want) > 0 && heap.First() != want[0] {
			rt.Fatalf("%d items in the order of the heap, want %d", len(got), len(want))
		}
	})
}
