package pebblestore

import (
	"bytes"
	"context"
	"encoding/binary"
	"math"
	"reflect"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/bulk"
)

var anyOutcome = rapid.Custom(func(t *rapid.T) bulk.Outcome {
	o := bulk.Outcome{
		Index:     rapid.Int64Range(0, MaxJobs).Draw(t, "index"),
		Succeeded: rapid.Bool().Draw(t, "succeeded"),
		Attempts:  rapid.IntRange(0, math.MaxUint16).Draw(t, "attempts"),
		Took:      time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "took")),
		Error:     rapid.String().Draw(t, "error"),
	}
	if values := rapid.SliceOf(rapid.Byte()).Draw(t, "values"); len(values) > 0 {
		o.Values = values
	}
	return o
})

func TestOutcomesRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		first := rapid.SliceOf(anyOutcome).Draw(t, "first batch")
		second := rapid.SliceOf(anyOutcome).Draw(t, "second batch")
		var got []bulk.Outcome
		for _, batch := range [][]bulk.Outcome{first, second} {
			value := encodeOutcomes(batch)
			var ok bool
			if got, ok = decodeOutcomes(got, value); !ok {
				t.Fatal("the batch is refused")
			}
			clear(value) // Pebble's memory is only valid for a moment
		}
		if want := append(first, second...); len(got) != len(want) || len(want) > 0 && !reflect.DeepEqual(got, want) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func TestOutcomeOfANegativeTimeTookNone(t *testing.T) {
	got, ok := decodeOutcomes(nil, encodeOutcomes([]bulk.Outcome{{Took: -time.Second}}))
	if !ok || len(got) != 1 || got[0].Took != 0 {
		t.Errorf("got %+v", got)
	}
}

func FuzzDecodeOutcomes(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeOutcomes([]bulk.Outcome{{Index: 3, Succeeded: true, Attempts: 1, Took: 5, Values: []byte("v")}, {Error: "e"}}))
	f.Add(binary.AppendUvarint(nil, math.MaxUint64))
	f.Add(append(binary.AppendUvarint(nil, 1<<40), make([]byte, 100)...))
	f.Fuzz(func(t *testing.T, value []byte) {
		outcomes, ok := decodeOutcomes(nil, value)
		if !ok {
			return
		}
		size := 0
		for _, o := range outcomes {
			size += len(o.Values) + len(o.Error) + 6 // each has six lengths and numbers
		}
		if size >= max(1, len(value)) {
			t.Fatalf("%d outcomes with %d bytes came of %d bytes", len(outcomes), size, len(value))
		}
	})
}

func TestDeadLetterRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := bulk.DeadLetter{
			Payload:  rapid.SliceOf(rapid.Byte()).Draw(t, "payload"),
			Error:    rapid.String().Draw(t, "error"),
			Attempts: rapid.IntRange(0, math.MaxUint16).Draw(t, "attempts"),
			FailedAt: time.UnixMilli(rapid.Int64Range(-1<<40, 1<<50).Draw(t, "at")).UTC(),
		}
		got, ok := decodeDeadLetter(encodeDeadLetter(want))
		if !ok || !bytes.Equal(got.Payload, want.Payload) || got.Error != want.Error ||
			got.Attempts != want.Attempts || !got.FailedAt.Equal(want.FailedAt) {
			t.Fatalf("got %+v, want %+v", got, want)
		}
	})
}

func FuzzDecodeDeadLetter(f *testing.F) {
	f.Add([]byte{})
	f.Add(encodeDeadLetter(bulk.DeadLetter{Payload: []byte("{}"), Error: "no", Attempts: 4, FailedAt: time.UnixMilli(5)}))
	f.Add(append([]byte{1, 1}, binary.AppendUvarint(nil, math.MaxUint64)...))
	f.Fuzz(func(t *testing.T, value []byte) {
		d, ok := decodeDeadLetter(value)
		if ok && len(d.Payload)+len(d.Error) > len(value) {
			t.Fatalf("%d bytes came of %d", len(d.Payload)+len(d.Error), len(value))
		}
	})
}

func TestDeadLettersBeyondTheLastJob(t *testing.T) {
	s := openMemory(t)
	number := appendJobs(t, s, "a", [][]byte{[]byte("0")})
	letter := encodeDeadLetter(bulk.DeadLetter{Payload: []byte("0")})
	if err := s.db.Set(indexKey(keyDead, number, 0), letter, nil); err != nil {
		t.Fatal(err)
	}
	for from, want := range map[int64]int{-5: 1, 0: 1, 1: 0, MaxJobs: 0, MaxJobs + 1: 0, 1 << 32: 0, math.MaxInt64: 0} {
		letters, err := s.DeadLetters(context.Background(), "a", from, 10)
		if err != nil || len(letters) != want {
			t.Errorf("from %d: %d letters, error %v; want %d", from, len(letters), err, want)
		}
	}
}
