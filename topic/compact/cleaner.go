package compact

import (
	"crypto/sha256"
	"math"

	"github.com/sluice-project/sluice/topic"
)

// MaxKeys is how many keys a pass knows, in about 40 MiB: what is beyond stays for the next pass.
const MaxKeys = 1 << 20

// keys has the last offset of each key among the records from an offset on.
type keys struct {
	last map[keySum]int64
	most int
	// next is the offset before which all records are in it; full reports that it ends before a
	// record because there are too many keys.
	next int64
	full bool
}

// keySum stands for a key. Clients choose keys, so it must be hard to find two of the same.
type keySum [16]byte

func sumOf(key []byte) keySum {
	sum := sha256.Sum256(key)
	return keySum(sum[:len(keySum{})])
}

// add adds the records of a batch from next on, whose data is uncompressed.
func (k *keys) add(b topic.Batch, data []byte) error {
	reader := topic.NewRecordReader(b, data)
	reader.WithoutHeaders = true
	for !k.full && reader.Next() {
		record := &reader.Record
		if record.Key == nil || record.Offset < k.next {
			continue
		}
		sum := sumOf(record.Key)
		if _, known := k.last[sum]; !known && len(k.last) >= k.most {
			k.full, k.next = true, record.Offset
			return nil
		}
		k.last[sum] = record.Offset
	}
	if reader.Err == nil && !k.full {
		k.next = max(k.next, b.Next())
	}
	return reader.Err
}

// skip passes over a batch without records that count.
func (k *keys) skip(b topic.Batch) {
	if !k.full {
		k.next = max(k.next, b.Next())
	}
}

// Options say how long what is deleted stays.
type Options struct {
	// Now is the present time, and DeleteRetention how long tombstones and markers stay, in
	// milliseconds.
	Now, DeleteRetention int64
	// Aborted reports whether a batch belongs to an aborted transaction.
	Aborted func(topic.Batch) bool
}

// horizon returns from when on tombstones that a pass finds first may be removed.
func (o *Options) horizon() int64 {
	if o.DeleteRetention > math.MaxInt64-o.Now {
		return math.MaxInt64
	}
	return o.Now + o.DeleteRetention
}

// Cleaner decides what stays of batches, which it gets in their order, beginning with the first
// of the log.
type Cleaner struct {
	options Options
	keys    *keys
	// seen are the producers of whose present transaction a batch was there.
	seen map[int64]bool
	kept []byte
}

func newCleaner(options Options, keys *keys) *Cleaner {
	return &Cleaner{options: options, keys: keys, seen: map[int64]bool{}}
}

// clean returns what stays of a batch, nil if nothing does. Data is its records uncompressed;
// the result does not alias it unless it is the batch.
func (c *Cleaner) clean(b topic.Batch, data []byte) (topic.Batch, error) {
	id, _, _ := b.Producer()
	switch {
	case b.Control():
		seen := c.seen[id]
		delete(c.seen, id)
		return c.marker(b, data, seen)
	case b.Transactional():
		c.seen[id] = true
	}
	if c.options.Aborted(b) {
		return nil, nil
	}
	return c.records(b, data)
}

// marker returns what stays of a marker: it stays until nothing of its transaction was there for
// the delete retention.
func (c *Cleaner) marker(b topic.Batch, data []byte, seen bool) (topic.Batch, error) {
	at, set := b.DeleteHorizon()
	switch {
	case seen || set && c.options.Now < at:
		return b, nil
	case set:
		return nil, nil
	}
	return c.rebuild(b, data, c.options.horizon(), func(*topic.Record) bool { return true })
}

// records returns what stays of a batch of records.
func (c *Cleaner) records(b topic.Batch, data []byte) (topic.Batch, error) {
	at, set := b.DeleteHorizon()
	past := set && c.options.Now >= at
	stays := func(r *topic.Record) bool {
		if r.Offset >= c.keys.next {
			return true
		}
		if r.Key == nil || past && r.Value == nil {
			return false
		}
		last, known := c.keys.last[sumOf(r.Key)]
		return !known || last <= r.Offset
	}
	count, tombstones := int32(0), false
	reader := topic.NewRecordReader(b, data)
	reader.WithoutHeaders = true
	for reader.Next() {
		if stays(&reader.Record) {
			count++
			tombstones = tombstones || reader.Record.Value == nil
		}
	}
	if reader.Err != nil {
		return nil, reader.Err
	}
	horizon := int64(-1)
	if tombstones && !set && b.Next() <= c.keys.next {
		horizon = c.options.horizon()
	}
	switch {
	case count == 0:
		return nil, nil
	case count == b.Count() && horizon < 0:
		return b, nil
	}
	return c.rebuild(b, data, horizon, stays)
}

// rebuild returns a batch with the records that stay, and with a delete horizon unless that is
// negative.
func (c *Cleaner) rebuild(b topic.Batch, data []byte, horizon int64, stays func(*topic.Record) bool) (topic.Batch, error) {
	first, highest, count := b.FirstTimestamp(), int64(topic.NoTimestamp), int32(0)
	if horizon >= 0 {
		first = horizon
	}
	c.kept = c.kept[:0]
	reader := topic.NewRecordReader(b, data)
	reader.WithoutHeaders = true
	for reader.Next() {
		if stays(&reader.Record) {
			count++
			highest = max(highest, reader.Record.Timestamp)
			c.kept = reader.AppendTo(c.kept, first)
		}
	}
	if reader.Err != nil {
		return nil, reader.Err
	}
	return b.Compacted(count, c.kept, horizon, highest)
}
