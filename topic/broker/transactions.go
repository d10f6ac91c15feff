package broker

import (
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/sluice-project/sluice/topic"
)

const (
	// abortedMax bounds the aborted transactions that a partition remembers, as long as it
	// has their records, and openMax the open ones.
	abortedMax = 50_000
	openMax    = 1000
	// A snapshot has to fit into a value of the metadata. Of its bytes, a producer takes at
	// most producerBytes, and an aborted transaction abortedBytes; openBytes are for the rest.
	snapshotBytes = 4 << 20
	producerBytes = 405
	abortedBytes  = 24
	openBytes     = 64 << 10
)

// room returns how many producers fit into a snapshot.
func (t *transactions) room() int {
	return (snapshotBytes - openBytes - abortedBytes*len(t.aborted)) / producerBytes
}

// transactions is a partition's state of its transactions. Pure: no clock, no I/O.
type transactions struct {
	// open has the first offset of each open transaction, by producer.
	open map[int64]int64
	// stable is the least offset in open: MaxInt64 without any.
	stable int64
	// aborted has the aborted transactions, in the order of their markers.
	aborted []Aborted
}

// Aborted is an aborted transaction: the records of the producer from the offset First up
// to the marker, at the offset Last.
type Aborted struct{ Producer, First, Last int64 }

func newTransactions() transactions {
	return transactions{open: map[int64]int64{}, stable: math.MaxInt64}
}

func (t *transactions) isOpen(producer int64) bool {
	_, open := t.open[producer]
	return open
}

// begin records a batch of a transaction.
func (t *transactions) begin(producer, base int64) {
	if !t.isOpen(producer) {
		t.open[producer] = base
		t.stable = min(t.stable, base)
	}
}

// end records a marker.
func (t *transactions) end(marker topic.Batch) {
	id, _, _ := marker.Producer()
	first, open := t.open[id]
	if !open {
		return
	}
	if !commits(marker) {
		t.aborted = append(t.aborted, Aborted{id, first, marker.Base()})
	}
	delete(t.open, id)
	t.restable()
}

func (t *transactions) restable() {
	t.stable = math.MaxInt64
	for _, first := range t.open {
		t.stable = min(t.stable, first)
	}
}

// mayBegin returns an error if no further transaction can be open here.
func (t *transactions) mayBegin() error {
	switch {
	case len(t.open) >= openMax:
		return fmt.Errorf("%w: %d are open in the partition, want fewer", topic.ErrTransactionsFull, openMax)
	case len(t.open)+len(t.aborted) >= abortedMax:
		return fmt.Errorf("%w: the partition has records of %d aborted ones: delete old records, or keep them for a shorter time",
			topic.ErrTransactionsFull, len(t.aborted))
	}
	return nil
}

// abortedIn returns the aborted transactions with records from an offset on and before
// another.
func (t *transactions) abortedIn(from, before int64) (found []Aborted) {
	at, _ := slices.BinarySearchFunc(t.aborted, from, func(a Aborted, from int64) int { return int(min(max(a.Last-from, -1), 1)) })
	for _, a := range t.aborted[at:] {
		if a.First < before {
			found = append(found, a)
		}
	}
	return found
}

// trim forgets the aborted transactions that have no record from an offset on.
func (t *transactions) trim(start int64) {
	t.aborted = slices.DeleteFunc(t.aborted, func(a Aborted) bool { return a.Last < start })
}

// commits reports whether a marker commits its transaction. The record of a marker begins
// with its length, attributes, and the deltas of its time and offset; its key has a version
// and the kind, 0 for abort and 1 for commit.
func commits(marker topic.Batch) bool {
	reader := topic.NewRecordReader(marker, marker[topic.RecordsAt:])
	return reader.Next() && len(reader.Record.Key) == markerKeyBytes && binary.BigEndian.Uint16(reader.Record.Key[2:]) == 1
}

const markerKeyBytes = 4

// newMarker returns the batch that ends a transaction. It has no timestamp, so that it
// has no part in what is found, or kept, by time.
func newMarker(producer int64, epoch int16, commit bool) (topic.Batch, error) {
	kind := byte(0)
	if commit {
		kind = 1
	}
	return topic.NewBatch([]topic.Record{{
		Timestamp: topic.NoTimestamp,
		Key:       []byte{0, 0, 0, kind},
		Value:     []byte{0, 0, 0, 0, 0, 0}, // version, epoch of the coordinator
	}}, topic.BatchOptions{
		Transactional: true, Control: true, Producer: &topic.BatchProducer{ID: producer, Epoch: epoch, Sequence: -1},
	})
}

// abortedSet finds aborted records. The transactions of a producer follow one another.
type abortedSet map[int64][]Aborted

func newAbortedSet(all []Aborted) abortedSet {
	set := abortedSet{}
	for _, a := range all {
		set[a.Producer] = append(set[a.Producer], a)
	}
	return set
}

// has reports whether the records of a batch were aborted.
func (s abortedSet) has(b topic.Batch) bool {
	if !b.Transactional() || len(s) == 0 {
		return false
	}
	id, _, _ := b.Producer()
	of, base := s[id], b.Base()
	at, _ := slices.BinarySearchFunc(of, base, func(a Aborted, base int64) int { return int(min(max(a.Last-base, -1), 1)) })
	return at < len(of) && of[at].First <= base
}

// encodeAborted returns the stored form: for each transaction, as varints, its producer,
// its first offset less the last one of the transaction before, and its length.
func encodeAborted(aborted []Aborted) []byte {
	var encoded []byte
	before := int64(0)
	for _, a := range aborted {
		encoded = binary.AppendVarint(encoded, a.Producer)
		encoded = binary.AppendVarint(encoded, a.First-before)
		encoded = binary.AppendVarint(encoded, a.Last-a.First)
		before = a.Last
	}
	return encoded
}

func decodeAborted(encoded []byte) (aborted []Aborted, err error) {
	before := int64(0)
	for len(encoded) > 0 {
		var fields [3]int64
		for i := range fields {
			value, n := binary.Varint(encoded)
			if n <= 0 {
				return nil, fmt.Errorf("%w: aborted transactions end in the middle", topic.ErrCorrupt)
			}
			fields[i], encoded = value, encoded[n:]
		}
		a := Aborted{fields[0], before + fields[1], before + fields[1] + fields[2]}
		aborted = append(aborted, a)
		before = a.Last
	}
	return aborted, nil
}
