package delay

import (
	"bytes"
	"errors"
	"reflect"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
)

// drawMove draws an operation of a delay log.
func drawMove(t *rapid.T) delayMove {
	move := delayMove{kind: rapid.SampledFrom([]delayKind{delayAdd, delaySettle, delayCancel, delayRelease, delayRewrite}).Draw(t, "kind")}
	ids := rapid.SliceOfN(rapid.StringN(0, 5, 20), 0, 4)
	switch move.kind {
	case delayAdd, delayRewrite:
		move.records = []topic.DelayedRecord{}
		for range rapid.IntRange(0, 4).Draw(t, "records") {
			move.records = append(move.records, topic.DelayedRecord{
				ID: rapid.String().Draw(t, "id"), Due: rapid.Int64().Draw(t, "due"), Body: rapid.SliceOf(rapid.Byte()).Draw(t, "body"),
			})
			if move.kind == delayRewrite {
				move.orders = append(move.orders, rapid.Uint64().Draw(t, "order"))
			}
		}
		if move.kind == delayAdd && rapid.Bool().Draw(t, "idempotent") {
			move.producer = &topic.BatchProducer{ID: rapid.Int64Min(0).Draw(t, "producer"), Epoch: rapid.Int16().Draw(t, "epoch"), Sequence: rapid.Int32().Draw(t, "sequence")}
		}
	case delaySettle:
		move.ids, move.dropped = ids.Draw(t, "kept"), ids.Draw(t, "dropped")
	case delayRelease:
		move.number = rapid.Int64Min(0).Draw(t, "number")
		move.ids = ids.Draw(t, "ids")
	default:
		move.ids = ids.Draw(t, "ids")
	}
	return move
}

func TestDelayEntriesAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var moves []delayMove
		entry := newDelayEntry(rapid.Uint64().Draw(t, "writer"))
		for range rapid.IntRange(0, 4).Draw(t, "moves") {
			move := drawMove(t)
			moves = append(moves, move)
			entry = appendDelayMove(entry, move)
		}
		sealDelayEntry(entry)
		got, err := readDelayEntry(entry)
		if err != nil || !reflect.DeepEqual(got, moves) {
			t.Fatalf("read %v, %v; want %v", got, err, moves)
		}
		wrong := bytes.Clone(entry)
		wrong[rapid.IntRange(0, len(wrong)-1).Draw(t, "at")] ^= 1
		if _, err := readDelayEntry(wrong); !errors.Is(err, topic.ErrCorrupt) {
			t.Fatalf("a bit changed: %v, want ErrCorrupt", err)
		}
	})
}

func FuzzDelayLog(f *testing.F) {
	for _, move := range []delayMove{
		{kind: delayAdd, producer: &topic.BatchProducer{ID: 1, Epoch: 2, Sequence: 3}, records: []topic.DelayedRecord{{ID: "id", Due: 5, Body: []byte("body")}}},
		{kind: delayRewrite, records: []topic.DelayedRecord{{ID: "id", Due: 5, Body: nil}}, orders: []uint64{7}},
		{kind: delaySettle, ids: []string{"a"}, dropped: []string{"b"}},
		{kind: delayRelease, number: 3, ids: []string{"a", ""}},
		{kind: delayCancel, ids: []string{"a"}},
	} {
		f.Add(appendDelayMove(newDelayEntry(1), move)[delayHeader:])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		entry := append(newDelayEntry(9), data...)
		sealDelayEntry(entry)
		moves, err := readDelayEntry(entry)
		if err != nil {
			if !errors.Is(err, topic.ErrCorrupt) {
				t.Fatalf("%v, want ErrCorrupt", err)
			}
			return
		}
		again := newDelayEntry(9)
		for _, move := range moves {
			again = appendDelayMove(again, move)
		}
		sealDelayEntry(again)
		if back, err := readDelayEntry(again); err != nil || !reflect.DeepEqual(back, moves) {
			t.Fatalf("written again: %v, %v; want %v", back, err, moves)
		}
		state := newDelayState()
		state.apply(1, len(entry), moves)
		state.apply(2, len(entry), moves)
		state.end(true)
	})
}
