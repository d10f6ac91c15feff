package broker

import (
	"testing"

	"github.com/sluice-project/sluice/topic"
)

// The memory of cached reads is bounded by size: entries may have megabytes.
func TestKeptReadsAreBounded(t *testing.T) {
	var c cold
	p := &Partition{}
	kept := func() (bytes int64) {
		for e := c.runs.Front(); e != nil; e = e.Next() {
			for _, entry := range e.Value.(*Run).entries {
				bytes += sizeOf(entry)
			}
		}
		return bytes
	}
	for i := range int64(20) {
		c.keep(p, []topic.Entry{{Sequence: uint64(2*i + 1), Mark: topic.Mark{Base: i, Next: i + 1}, Data: make([]byte, 7<<20)}})
		if bytes := kept(); bytes > coldKept || bytes != c.bytes {
			t.Fatalf("%d bytes are kept, counted %d, want at most %d", bytes, c.bytes, coldKept)
		}
		if c.at(p, i) == nil {
			t.Fatalf("the last read is not kept")
		}
	}
	c.keep(p, []topic.Entry{{Sequence: 41, Mark: topic.Mark{Base: 20, Next: 21}, Data: make([]byte, coldKept)}})
	if c.at(p, 20) == nil || c.runs.Len() != 1 {
		t.Errorf("%d reads are kept, want the last alone", c.runs.Len())
	}
	if c.forget(p); c.bytes != 0 || c.runs.Len() != 0 {
		t.Errorf("%d reads of %d bytes are kept of a partition that is gone", c.runs.Len(), c.bytes)
	}
}

// A consumer that reads on keeps the memory of one read, and takes none from another partition.
func TestKeptReadsOfAConsumer(t *testing.T) {
	var c cold
	p, other := &Partition{}, &Partition{}
	read := func(p *Partition, i int64) {
		c.keep(p, []topic.Entry{{Sequence: uint64(i + 1), Mark: topic.Mark{Base: i, Next: i + 1}, Data: make([]byte, 1000)}})
	}
	read(other, 0)
	for i := range int64(20) {
		read(p, i)
	}
	if c.at(p, 19) == nil || c.runs.Len() != 2 || c.bytes != 2*(1000+entryOverhead) {
		t.Errorf("%d reads of %d bytes are kept, want the last of each partition", c.runs.Len(), c.bytes)
	}
}
