package compact_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"testing"

	"golang.org/x/sync/semaphore"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/compact"
	"github.com/sluice-project/sluice/topic/storetest"
)

var unpacker = topic.NewUnpacker(semaphore.NewWeighted(topic.LeastUnpackBytes))

// written is a record as it was written.
type written struct {
	topic.Record
	producer    int64
	transaction int // 0 for none
	control     bool
	batch       int64 // base of its batch
}

// model is a log, and what a compacted one must have, found by looking at all records.
type model struct {
	records  []written
	aborted  map[int]bool
	horizons map[int64]int64 // by batches' base
	gone     map[int64]bool  // offsets that were removed
}

// pass applies a pass to all records before an offset; those of batches at or after end stay.
func (m *model) pass(now, retention, next, end int64) {
	last := map[string]int64{}
	for _, r := range m.records {
		if r.Offset < next && !r.control && !m.aborted[r.transaction] && r.Key != nil && !m.gone[r.Offset] {
			last[string(r.Key)] = r.Offset
		}
	}
	hasData := map[int]bool{}
	for _, r := range m.records {
		if !r.control && !m.gone[r.Offset] {
			hasData[r.transaction] = true
		}
	}
	tombstones := map[int64]bool{}
	for _, r := range m.records {
		horizon, set := m.horizons[r.batch]
		past := set && now >= horizon
		switch {
		case r.Offset >= end || m.gone[r.Offset]:
			continue
		case r.control && !hasData[r.transaction]:
			m.gone[r.Offset] = past
			tombstones[r.batch] = !past
		case r.control:
		case m.aborted[r.transaction]:
			m.gone[r.Offset] = true
		case r.Offset >= next:
		case r.Key == nil || last[string(r.Key)] > r.Offset || past && r.Value == nil:
			m.gone[r.Offset] = true
		case r.Value == nil && m.endOf(r.batch) <= next:
			tombstones[r.batch] = true
		}
	}
	for batch, has := range tombstones {
		if _, set := m.horizons[batch]; has && !set {
			m.horizons[batch] = now + retention
		}
	}
}

// endOf returns the offset after a batch.
func (m *model) endOf(batch int64) (end int64) {
	for _, r := range m.records {
		if r.batch == batch {
			end = r.Offset + 1
		}
	}
	return end
}

func (m *model) left() (left []written) {
	for _, r := range m.records {
		if !m.gone[r.Offset] {
			left = append(left, r)
		}
	}
	return left
}

// writer writes random batches into a log.
type writer struct {
	t        *rapid.T
	model    *model
	log      topic.Log
	mark     topic.Mark
	sequence uint64
	open     map[int64]int // transactions, by producer
	count    int
	now      int64
}

var codecs = []int{topic.CodecNone, topic.CodecNone, topic.CodecGzip, topic.CodecZstd, topic.CodecLZ4, topic.CodecSnappy}

func (w *writer) batch() topic.Batch {
	t := w.t
	options := topic.BatchOptions{Base: w.mark.Next, Epoch: w.mark.Epoch, Codec: rapid.SampledFrom(codecs).Draw(t, "codec")}
	producer := rapid.Int64Range(-1, 2).Draw(t, "producer")
	transaction := w.open[producer]
	if producer >= 0 {
		options.Producer = &topic.BatchProducer{ID: producer, Sequence: int32(w.mark.Next)}
	}
	if transaction != 0 && rapid.IntRange(0, 2).Draw(t, "end") == 0 {
		return w.marker(options, producer, transaction)
	}
	if producer >= 0 && (transaction != 0 || rapid.Bool().Draw(t, "transactional")) {
		if transaction == 0 {
			w.count++
			transaction = w.count
			w.open[producer] = transaction
		}
		options.Transactional = true
	}
	var records []topic.Record
	for i := range rapid.IntRange(1, 4).Draw(t, "records") {
		r := topic.Record{Offset: w.mark.Next + int64(i), Timestamp: w.now - rapid.Int64Range(0, 50).Draw(t, "age"), Headers: []topic.Header{{Key: "h", Value: []byte{byte(i)}}}}
		if key := rapid.IntRange(-1, 5).Draw(t, "key"); key >= 0 {
			r.Key = fmt.Append(nil, "key", key)
		}
		if rapid.IntRange(0, 2).Draw(t, "kind") > 0 {
			r.Value = fmt.Append(nil, "value", r.Offset)
		}
		records = append(records, r)
		w.model.records = append(w.model.records, written{r, producer, transaction, false, options.Base})
	}
	return w.made(records, options)
}

func (w *writer) marker(options topic.BatchOptions, producer int64, transaction int) topic.Batch {
	kind := rapid.Byte().Draw(w.t, "commits") % 2
	r := topic.Record{Offset: w.mark.Next, Timestamp: topic.NoTimestamp, Key: []byte{0, 0, 0, kind}, Value: make([]byte, 6)}
	w.model.records = append(w.model.records, written{r, producer, transaction, true, options.Base})
	w.model.aborted[transaction] = kind == 0
	delete(w.open, producer)
	options.Transactional, options.Control, options.Codec = true, true, topic.CodecNone
	options.Producer.Sequence = -1
	return w.made([]topic.Record{r}, options)
}

func (w *writer) made(records []topic.Record, options topic.BatchOptions) topic.Batch {
	b, err := topic.NewBatch(records, options)
	if err != nil {
		w.t.Fatal(err)
	}
	return b
}

// entry writes an entry of some batches, or a fence.
func (w *writer) entry() {
	if rapid.IntRange(0, 5).Draw(w.t, "leader") == 0 {
		w.mark.Epoch++
	}
	w.mark.Base = w.mark.Next
	var data []byte
	for range rapid.IntRange(0, 3).Draw(w.t, "batches") {
		b := w.batch()
		data = append(data, b...)
		w.mark.Next = b.Next()
		w.mark.MaxTimestamp = max(w.mark.MaxTimestamp, b.MaxTimestamp())
	}
	w.mark.Bytes += int64(len(data))
	w.append(data)
}

func (w *writer) append(data []byte) {
	w.sequence++
	appended(w.t, w.log, topic.Entry{Sequence: w.sequence, Mark: w.mark, Data: data})
}

func appended(t interface{ Fatal(...any) }, log topic.Log, entry topic.Entry) {
	done := make(chan error, 1)
	log.Append(entry, func(err error) { done <- err })
	if err := <-done; err != nil {
		t.Fatal(err)
	}
}

// stable returns the last entry without a record of an open transaction.
func (w *writer) stable(all []topic.Entry) (last topic.Entry, ok bool) {
	stable := w.mark.Next
	for _, r := range w.model.records {
		if w.open[r.producer] == r.transaction && r.transaction != 0 {
			stable = min(stable, r.Offset)
		}
	}
	for _, e := range all {
		if e.Mark.Next <= stable {
			last, ok = e, true
		}
	}
	return last, ok
}

func entriesOf(t interface{ Fatal(...any) }, log topic.Log) (all []topic.Entry) {
	first, last, err := log.Ends(context.Background())
	for from := first; err == nil && from <= last; from = all[len(all)-1].Sequence + 1 {
		var some []topic.Entry
		some, err = log.Read(context.Background(), from, 3000)
		if err == nil && len(some) == 0 {
			t.Fatal("no entry ", from)
		}
		all = append(all, some...)
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// A log that grows and is compacted again and again has what the model has: each record that is left as
// it was written, no other, and entries and marks that follow each other.
func TestPassesAgainstAModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		store := storetest.NewMemory()
		log := func(name string, first uint64) topic.Log {
			made, err := store.MakeLog(context.Background(), name, []int32{1}, first)
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		m := &model{aborted: map[int]bool{}, horizons: map[int64]int64{}, gone: map[int64]bool{}}
		w := &writer{t: t, model: m, log: log("0", 1), mark: topic.Mark{MaxTimestamp: topic.NoTimestamp}, open: map[int64]int{}, now: 1000}
		from := int64(0)
		for round := range rapid.IntRange(1, 5).Draw(t, "rounds") {
			for range rapid.IntRange(1, 6).Draw(t, "entries") {
				w.entry()
			}
			w.now += rapid.Int64Range(0, 100).Draw(t, "later")
			before := entriesOf(t, w.log)
			last, ok := w.stable(before)
			if !ok {
				continue
			}
			next := compactInto(t, w, before, last, from, func(first uint64) topic.Log { return log(fmt.Sprint(round+1), first) })
			if next < from {
				t.Fatalf("compacted before %d, and before %d earlier", next, from)
			}
			from = next
			check(t, m, before, entriesOf(t, w.log))
		}
	})
}

// compactInto compacts the writer's log into another one, which takes its place.
func compactInto(t *rapid.T, w *writer, before []topic.Entry, last topic.Entry, from int64, make func(first uint64) topic.Log) int64 {
	retention := int64(60)
	pass := &compact.Pass{
		Options: compact.Options{Now: w.now, DeleteRetention: retention, Aborted: func(b topic.Batch) bool {
			at := slices.IndexFunc(w.model.records, func(r written) bool { return r.batch == b.Base() })
			return w.model.aborted[w.model.records[at].transaction] && !b.Control()
		}},
		Source: w.log, Unpacker: unpacker, First: before[0].Mark, FirstSequence: before[0].Sequence, Last: last.Mark, LastSequence: last.Sequence,
		Before: before[0].Mark.Bytes - int64(len(before[0].Data)), From: from, MaxKeys: rapid.IntRange(1, 8).Draw(t, "keys"), Span: rapid.Int64Range(0, 50).Draw(t, "span"),
		Pace: func(context.Context) error { return nil },
	}
	begin := before[0].Sequence
	for _, e := range before {
		if e.Mark.Next > from {
			begin = e.Sequence
			break
		}
	}
	if err := pass.Find(context.Background(), begin); err != nil {
		t.Fatal(err)
	}
	made := make(pass.LastSequence + 1 - pass.Entries())
	bytes, err := pass.Copy(context.Background(), func(e topic.Entry) error {
		appended(t, made, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	// The rest is appended with the marks of a log that has that many bytes less.
	less := pass.Last.Bytes - bytes
	for _, e := range before {
		if e.Sequence > pass.LastSequence {
			e.Mark.Bytes -= less
			appended(t, made, e)
		}
	}
	w.mark.Bytes -= less
	w.log = made
	w.model.pass(w.now, retention, pass.Next(), pass.Last.Next)
	return pass.Next()
}

// check compares a compacted log with the model, and with the log before.
func check(t *rapid.T, m *model, before, after []topic.Entry) {
	var got []written
	for i, e := range after {
		batches, err := topic.SplitBatches(e.Data)
		if err != nil {
			t.Fatal(err)
		}
		if i > 0 && (e.Sequence != after[i-1].Sequence+1 || e.Mark.Base != after[i-1].Mark.Next || e.Mark.Before(after[i-1].Mark)) {
			t.Fatalf("entry %d %+v follows %d %+v", e.Sequence, e.Mark, after[i-1].Sequence, after[i-1].Mark)
		}
		if n := len(batches); n > 0 && batches[n-1].Next() != e.Mark.Next {
			t.Fatalf("entry %d ends at %d, its last batch at %d: readers would stop there", e.Sequence, e.Mark.Next, batches[n-1].Next())
		}
		for _, b := range batches {
			if err := b.Check(); err != nil || b.Epoch() != e.Mark.Epoch {
				t.Fatalf("batch at %d of epoch %d in %+v: %v", b.Base(), b.Epoch(), e.Mark, err)
			}
			got = append(got, recordsOf(t, b, e.Mark)...)
		}
	}
	want := m.left()
	if len(got) != len(want) {
		t.Fatalf("%d records are left: %v\nwant %d: %v", len(got), offsetsOf(got), len(want), offsetsOf(want))
	}
	for i := range got {
		if g, w := got[i], want[i]; g.Offset != w.Offset || g.Timestamp != w.Timestamp || fmt.Sprint(g.Key, g.Value, g.Headers) != fmt.Sprint(w.Key, w.Value, w.Headers) ||
			g.producer != w.producer || g.control != w.control || (g.Key == nil) != (w.Key == nil) || (g.Value == nil) != (w.Value == nil) {
			t.Fatalf("record is %+v, want %+v", g, w)
		}
	}
	last, lastBefore := after[len(after)-1], before[len(before)-1]
	if after[0].Mark.Base != before[0].Mark.Base || last.Sequence != lastBefore.Sequence || last.Mark.Next != lastBefore.Mark.Next || after[0].Sequence < before[0].Sequence {
		t.Fatalf("log from %+v to %+v, was from %+v to %+v", after[0].Mark, last.Mark, before[0].Mark, lastBefore.Mark)
	}
	if now, was := epochs(after), epochs(before); !maps.Equal(now, was) {
		t.Fatalf("epochs end at %v, want %v", now, was)
	}
}

func recordsOf(t *rapid.T, b topic.Batch, mark topic.Mark) (records []written) {
	producer, _, sequence := b.Producer()
	if producer >= 0 && !b.Control() && int64(sequence) != b.Base() {
		t.Fatalf("batch at %d has sequence %d: it has changed", b.Base(), sequence)
	}
	for r, err := range b.Records() {
		if err != nil {
			t.Fatal(err)
		}
		if r.Timestamp > b.MaxTimestamp() || r.Timestamp > mark.MaxTimestamp {
			t.Fatalf("record of %d in a batch up to %d and an entry up to %d", r.Timestamp, b.MaxTimestamp(), mark.MaxTimestamp)
		}
		records = append(records, written{Record: r, producer: producer, control: b.Control()})
	}
	return records
}

func offsetsOf(records []written) (offsets []int64) {
	for _, r := range records {
		offsets = append(offsets, r.Offset)
	}
	return offsets
}

// epochs returns where each epoch with batches ends.
func epochs(all []topic.Entry) map[int32]int64 {
	ends := map[int32]int64{}
	for _, e := range all {
		if len(e.Data) > 0 {
			ends[e.Mark.Epoch] = e.Mark.Next
		}
	}
	return ends
}
