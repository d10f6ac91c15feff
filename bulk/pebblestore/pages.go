package pebblestore

import (
	"container/list"
	"encoding/binary"
	"errors"
	"math"
	"slices"
	"sync"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

const (
	// payloadPageBytes and payloadPageJobs bound a page of payloads; a payload
	// that is larger has a page of its own.
	payloadPageBytes = 128 << 10
	payloadPageJobs  = 1024
	// cachedPageBytes bounds the pages kept for the jobs that are leased next: those of 150,000 small
	// actions, whose tenants take turns.
	cachedPageBytes = 64 << 20
	// pageOverhead is about the memory that a kept page takes in addition to its payloads.
	pageOverhead = 256
)

// encodePage encodes payloads as one page: their number, their lengths, their bytes.
func encodePage(payloads [][]byte, size int) []byte {
	page := make([]byte, 0, size+3*len(payloads)+8)
	page = binary.AppendUvarint(page, uint64(len(payloads)))
	for _, p := range payloads {
		page = binary.AppendUvarint(page, uint64(len(p)))
	}
	for _, p := range payloads {
		page = append(page, p...)
	}
	return page
}

// pageJobs returns how many jobs a page has.
func pageJobs(value []byte) int64 {
	r := pebblekv.Reader{Rest: value}
	return int64(r.Uvarint())
}

// pageBytes returns the size of a page's payloads.
func pageBytes(value []byte) (bytes int64) {
	r := pebblekv.Reader{Rest: value}
	for range min(r.Uvarint(), payloadPageJobs) {
		bytes += int64(r.Uvarint())
	}
	return bytes
}

// splitPages cuts payloads into pages.
func splitPages(payloads [][]byte, emit func(payloads [][]byte, size int)) {
	from, size := 0, 0
	for i, p := range payloads {
		if i > from && (size+len(p) > payloadPageBytes || i-from == payloadPageJobs) {
			emit(payloads[from:i], size)
			from, size = i, 0
		}
		size += len(p)
	}
	if from < len(payloads) {
		emit(payloads[from:], size)
	}
}

// page is a decoded page of payloads.
type page struct {
	number  uint64
	first   uint32
	data    []byte
	offsets []uint32 // of each payload in data, and the end
}

func decodePage(number uint64, first uint32, value []byte) (*page, bool) {
	r := pebblekv.Reader{Rest: value}
	count := r.Uvarint()
	if count > uint64(len(value)) {
		return nil, false
	}
	p := &page{number: number, first: first, offsets: make([]uint32, count+1)}
	var end uint64
	for i := range count {
		// Each is bounded, so that the sum cannot overflow.
		end += min(r.Uvarint(), math.MaxUint32)
		p.offsets[i+1] = uint32(end)
	}
	if r.Bad || end != uint64(len(r.Rest)) {
		return nil, false
	}
	p.data = append([]byte{}, r.Rest...)
	return p, true
}

// size returns how many bytes of memory the page takes.
func (p *page) size() int { return len(p.data) + 4*len(p.offsets) + pageOverhead }

func (p *page) has(index uint32) bool {
	return index >= p.first && index-p.first < uint32(len(p.offsets)-1)
}

func (p *page) payload(index uint32) []byte {
	at := index - p.first
	return p.data[p.offsets[at]:p.offsets[at+1]:p.offsets[at+1]]
}

// pages reads payloads. It caches the pages last used, at most two for each action: one
// for jobs in order, one for jobs that are repeated.
type pages struct {
	db *pebble.DB

	mu     sync.Mutex
	recent *list.List // of *page, the last used in front
	of     map[uint64][]*list.Element
	bytes  int
}

func newPages(db *pebble.DB) *pages {
	return &pages{db: db, recent: list.New(), of: map[uint64][]*list.Element{}}
}

// errNoPayload is the error of a job whose page is missing.
var errNoPayload = errors.New("no payload is stored for this job")

// payload returns the payload of a job. Callers must not modify it.
func (c *pages) payload(number uint64, index uint32) ([]byte, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, element := range c.of[number] {
		if p := element.Value.(*page); p.has(index) {
			c.recent.MoveToFront(element)
			return p.payload(index), nil
		}
	}
	p, err := c.read(number, index)
	if err != nil {
		return nil, err
	}
	c.keep(p)
	return p.payload(index), nil
}

func (c *pages) read(number uint64, index uint32) (p *page, err error) {
	from, _ := numberRange(keyPayloads, number)
	iter, err := c.db.NewIter(&pebble.IterOptions{LowerBound: from, UpperBound: indexKey(keyPayloads, number, index+1)})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, iter.Close()) }()
	if !iter.Last() {
		return nil, errors.Join(iter.Error(), errNoPayload)
	}
	value, err := iter.ValueAndErr()
	if err != nil {
		return nil, err
	}
	first := binary.BigEndian.Uint32(iter.Key()[9:])
	p, ok := decodePage(number, first, value)
	if !ok {
		return nil, pebblekv.Corrupt(iter.Key(), "not a page of payloads")
	}
	if !p.has(index) {
		return nil, errNoPayload
	}
	return p, nil
}

// whole reports whether a page with all jobs of an action is in the cache.
func (c *pages) whole(number uint64, jobs int64) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return slices.ContainsFunc(c.of[number], func(element *list.Element) bool {
		return int64(len(element.Value.(*page).offsets)) == jobs+1
	})
}

func (c *pages) keep(p *page) {
	of := c.of[p.number]
	if len(of) == 2 {
		oldest := of[0]
		if of[1].Value.(*page).first < of[0].Value.(*page).first {
			oldest = of[1]
		}
		c.drop(oldest)
	}
	c.of[p.number] = append(c.of[p.number], c.recent.PushFront(p))
	c.bytes += p.size()
	for c.bytes > cachedPageBytes && c.recent.Len() > 1 {
		c.drop(c.recent.Back())
	}
}

func (c *pages) drop(element *list.Element) {
	p := c.recent.Remove(element).(*page)
	c.bytes -= p.size()
	left := c.of[p.number][:0:0]
	for _, e := range c.of[p.number] {
		if e != element {
			left = append(left, e)
		}
	}
	if len(left) == 0 {
		delete(c.of, p.number)
		return
	}
	c.of[p.number] = left
}

// forget drops the cached pages of an action.
func (c *pages) forget(number uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, element := range c.of[number] {
		c.drop(element)
	}
}
