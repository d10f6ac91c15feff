package broker

import (
	"errors"
	"math"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
)

func batchOfTransaction(t *testing.T, sequence int32) topic.Batch {
	t.Helper()
	b, err := topic.NewBatch([]topic.Record{{Value: []byte("x")}}, topic.BatchOptions{
		Transactional: true, Producer: &topic.BatchProducer{ID: 7, Epoch: 3, Sequence: sequence},
	})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// Proofs count in the order of their revisions: a batch whose proof is from before the marker does not begin a
// transaction after it, and a marker from before the batch does not end its transaction.
func TestProofsThatAreLateDoNotCount(t *testing.T) {
	p := newProducers(10)
	batch := batchOfTransaction(t, 0)
	marker, err := newMarker(7, 3, false)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.checkTransaction(batch, 0); !errors.Is(err, errUnproven) {
		t.Errorf("without a proof: %v", err)
	}
	apply := func(b topic.Batch, revision uint64, base int64) {
		t.Helper()
		if b.Control() {
			if ended, err := p.checkMarker(b, revision, 0); ended || err != nil {
				t.Fatalf("marker at %d: %v, %v", revision, ended, err)
			}
		} else if err := p.checkTransaction(b, revision); err != nil {
			t.Fatalf("batch at %d: %v", revision, err)
		}
		b.Stamp(base, 1)
		p.add(b, 0)
		p.applied(b, proof{revision: revision})
	}
	apply(batch, 5, 10)
	apply(marker, 6, 11)
	if err := p.checkTransaction(batch, 5); !errors.Is(err, errUnproven) {
		t.Errorf("a batch from before the marker: %v", err)
	}
	apply(batch, 8, 12)
	if ended, err := p.checkMarker(marker, 6, 0); !ended || err != nil {
		t.Errorf("the first marker, late: %v, %v; want that it has no effect", ended, err)
	}
	if !p.isOpen(7) || p.stable != 12 {
		t.Errorf("open %v, stable %d", p.open, p.stable)
	}
	apply(marker, 9, 13)
	if want := []Aborted{{7, 10, 11}, {7, 12, 13}}; !slices.Equal(p.aborted, want) || p.stable != math.MaxInt64 {
		t.Errorf("aborted %v, stable %d; want %v", p.aborted, p.stable, want)
	}
	if _, err := p.checkMarker(marker, 0, 0); !errors.Is(err, topic.ErrRetry) {
		t.Errorf("a marker whose proof does not count: %v", err)
	}
	// A marker that comes first, of a transaction without records here, refuses what is late.
	other := newProducers(10)
	if ended, err := other.checkMarker(marker, 6, 0); !ended || err != nil {
		t.Errorf("a marker without records: %v, %v; want nothing written", ended, err)
	}
	if err := other.checkTransaction(batch, 5); !errors.Is(err, errUnproven) {
		t.Errorf("a batch from before that marker: %v", err)
	}
}

func TestAbortedTransactionsAreStored(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var aborted []Aborted
		last := int64(0)
		for range rapid.IntRange(0, 20).Draw(t, "count") {
			last += rapid.Int64Range(1, 1<<40).Draw(t, "to the marker")
			aborted = append(aborted, Aborted{rapid.Int64Min(0).Draw(t, "producer"), rapid.Int64Range(0, last-1).Draw(t, "first"), last})
		}
		got, err := decodeAborted(encodeAborted(aborted))
		if err != nil || !slices.Equal(got, aborted) {
			t.Fatalf("%v, %v; want %v", got, err, aborted)
		}
		if whole := encodeAborted(aborted); len(whole) > 0 {
			if _, err := decodeAborted(whole[:len(whole)-1]); !errors.Is(err, topic.ErrCorrupt) {
				t.Fatalf("cut off: %v", err)
			}
		}
	})
}

// Transactions that are cut off a log with its end are forgotten; one whose abort is lost is open again.
func TestTransactionsOfALogThatHasLostItsEnd(t *testing.T) {
	s := producersSnapshot{
		Sequence: 9, Next: 100, Open: map[int64]int64{1: 40, 2: 60},
		Producers: map[int64]*producer{1: {Sent: []sentBatch{{Base: 40}}}, 2: {Sent: []sentBatch{{Base: 60}}}, 3: {Sent: []sentBatch{{Base: 30}}}},
		Aborted:   encodeAborted([]Aborted{{3, 10, 20}, {3, 30, 55}}),
	}
	if err := s.cut(point{8, topic.Mark{Next: 50}}); err != nil {
		t.Fatal(err)
	}
	p, err := s.restored(10)
	if err != nil || p.stable != 30 || len(p.open) != 2 || p.open[1] != 40 || p.open[3] != 30 || !slices.Equal(p.aborted, []Aborted{{3, 10, 20}}) {
		t.Errorf("open %v, stable %d, aborted %v, %v", p.open, p.stable, p.aborted, err)
	}
}
