package filestore

import (
	"container/list"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/topic"
)

const (
	// pointEvery is the least distance between two points.
	pointEvery = 128 << 10
	// pointsAtOnce is how many points are written at a time.
	pointsAtOnce = 32

	segmentEnding = ".log"
	pointsEnding  = ".points"
	newEnding     = ".new"

	category = "sluice-topic" // of writes, for Pebble's file systems
)

// errGone reports that a segment was removed.
var errGone = errors.New("the segment was removed")

// segment is a file of frames.
type segment struct {
	store *Store
	base  string // its path without the ending
	first uint64 // the sequence of its first frame

	element *list.Element // guarded by openFiles.mu

	mu   sync.Mutex
	gone bool
	uses int      // calls that use file
	file vfs.File // nil while it is closed
	salt uint64
	// points has some of its frames, and how many of them the points file has.
	points []point
	kept   int
	// end is where its frames end, and next the sequence that follows: of a segment that was
	// not read yet, end is 0, and next is known unless it is the last.
	end  int64
	next uint64
}

func (s *Store) segment(dir string, first uint64) *segment {
	return &segment{store: s, first: first, base: s.fs.PathJoin(dir, fmt.Sprintf("%020d", first))}
}

// createSegment makes an empty segment, durably.
func (s *Store) createSegment(dir string, first uint64) (*segment, error) {
	var salt [saltBytes]byte
	_, _ = rand.Read(salt[:]) // it never fails
	g := s.segment(dir, first)
	file, err := s.fs.Create(g.base+newEnding, category)
	if err != nil {
		return nil, err
	}
	_, err = file.Write(preamble{first: first, salt: binary.BigEndian.Uint64(salt[:])}.encode())
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return nil, err
	}
	if err := s.fs.Rename(g.base+newEnding, g.base+segmentEnding); err != nil {
		return nil, err
	}
	g.end, g.next = preambleBytes, first
	return g, s.syncDir(dir)
}

// use opens the file, unless it is open. The caller calls unuse when it is done.
func (g *segment) use() error {
	g.mu.Lock()
	if g.gone {
		g.mu.Unlock()
		return errGone
	}
	if g.file == nil {
		if err := g.load(); err != nil {
			g.mu.Unlock()
			return err
		}
	}
	g.uses++
	g.mu.Unlock()
	g.store.files.used(g)
	return nil
}

func (g *segment) unuse() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.uses--; g.uses == 0 && g.gone {
		g.close()
	}
}

// close closes the file. The caller holds mu.
func (g *segment) close() {
	if g.file != nil {
		_ = g.file.Close() // nothing is lost: writes are synced, or not promised
		g.file, g.points = nil, nil
	}
}

// remove makes all later uses fail, and removes the files.
func (g *segment) remove() error {
	g.retire()
	err := g.store.fs.Remove(g.base + segmentEnding)
	if err := g.store.fs.Remove(g.base + pointsEnding); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return err
}

// retire makes all later uses fail.
func (g *segment) retire() {
	g.store.files.forget(g)
	g.mu.Lock()
	defer g.mu.Unlock()
	g.gone = true
	if g.uses == 0 {
		g.close()
	}
}

// load opens the file and finds its points. The caller holds mu.
func (g *segment) load() (err error) {
	path := g.base + segmentEnding
	info, err := g.store.fs.Stat(path)
	if err != nil {
		return g.missing(err)
	}
	if g.file, err = g.store.openSegment(path); err != nil {
		return err
	}
	defer func() {
		if err != nil {
			g.close()
		}
	}()
	start := make([]byte, preambleBytes)
	if _, err := g.file.ReadAt(start, 0); err != nil && !errors.Is(err, io.EOF) {
		return err
	}
	p, err := parsePreamble(start)
	if err != nil {
		return g.damage(0, err.Error())
	}
	if p.first != g.first {
		return g.damage(0, fmt.Sprintf("it begins with entry %d, its name says %d", p.first, g.first))
	}
	g.salt = p.salt
	if err := g.loadPoints(); err != nil {
		return err
	}
	if last := g.lastPoint(); last.position > info.Size() {
		return g.damage(info.Size(), fmt.Sprintf("it ends here, and had entries up to byte %d", last.position))
	}
	switch {
	case g.end > 0:
		return g.walk(g.end)
	case g.next > 0:
		return g.walk(info.Size())
	}
	return g.recover(info.Size())
}

func (s *Store) openSegment(path string) (vfs.File, error) {
	if s.readOnly {
		return s.fs.Open(path)
	}
	return s.fs.OpenReadWrite(path, category)
}

// loadPoints reads the points file.
func (g *segment) loadPoints() error {
	g.points = []point{{g.first, preambleBytes}}
	g.kept = 0
	file, err := g.store.fs.Open(g.base + pointsEnding)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	content, err := io.ReadAll(file)
	if err = errors.Join(err, file.Close()); err != nil {
		return err
	}
	if kept := parsePoints(content, g.salt); len(kept) > 0 && kept[0] == g.points[0] {
		g.points, g.kept = kept, len(kept)
	}
	return nil
}

func (g *segment) lastPoint() point { return g.points[len(g.points)-1] }

// walk follows the headers from the last point to the end, which is at most at size, and adds
// points. The entries before next must be there.
func (g *segment) walk(size int64) error {
	scan := scanner{file: g.file, salt: g.salt, size: size, step: walkBytes}
	at := g.lastPoint()
	for at.sequence < g.next {
		f, ok, err := scan.header(at.position)
		if err != nil {
			return err
		}
		if !ok || f.sequence != at.sequence {
			return g.damage(at.position, fmt.Sprintf("entry %d should be here", at.sequence))
		}
		g.addPoint(at)
		at = point{at.sequence + 1, at.position + f.size()}
	}
	if at.sequence > g.next {
		return g.damage(at.position, fmt.Sprintf("it has entry %d, which should begin the next file", g.next))
	}
	if g.end == 0 { // it is read without the lock by the goroutine that writes
		g.end = at.position
	}
	return nil
}

// addPoint adds a point if it is far enough from the last one.
func (g *segment) addPoint(p point) {
	if p.position-g.lastPoint().position >= pointEvery {
		g.points = append(g.points, p)
	}
}

// keepPoints writes points up to durable into the points file, when there are enough of them.
// If all is durable, as when the segment or the store is being closed, sealed writes the rest
// and the end.
func (g *segment) keepPoints(durable int64, sealed bool) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if end := (point{g.next, g.end}); sealed && end.position > g.lastPoint().position {
		g.points = append(g.points, end)
	}
	write := g.points[g.kept:]
	for len(write) > 0 && write[len(write)-1].position > durable {
		write = write[:len(write)-1]
	}
	if len(write) == 0 || len(write) < pointsAtOnce && !sealed {
		return
	}
	var b []byte
	for _, p := range write {
		b = appendPoint(b, g.salt, p)
	}
	file, err := g.store.fs.OpenReadWrite(g.base+pointsEnding, category)
	if err == nil {
		_, err = file.WriteAt(b, int64(g.kept)*pointBytes)
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		g.store.log.Warn("points of a segment were not written: opening it will take longer", "segment", g.base, "error", err)
		return
	}
	g.kept += len(write)
}

// read returns entries from a sequence on, as Log.Read does, but from this segment only.
func (g *segment) read(from uint64, maxBytes int) ([]topic.Entry, error) {
	if err := g.use(); err != nil {
		return nil, err
	}
	defer g.unuse()
	at, end, next := g.before(from)
	if from >= next {
		return nil, nil
	}
	scan := scanners.Get().(*scanner)
	defer scanners.Put(scan)
	*scan = scanner{file: g.file, salt: g.salt, size: end, step: walkBytes, held: scan.held[:0]}
	for {
		f, ok, err := scan.header(at.position)
		if err != nil {
			return nil, err
		}
		if !ok || f.sequence != at.sequence {
			return nil, g.damage(at.position, fmt.Sprintf("entry %d should be here", at.sequence))
		}
		if at.sequence == from {
			block := topic.TakeBlock(int(min(end-at.position, max(f.size(), int64(maxBytes)))))
			n, err := g.file.ReadAt(block.Bytes, at.position)
			if err != nil && !errors.Is(err, io.EOF) {
				return nil, err
			}
			return g.entries(block, n, at)
		}
		at = point{at.sequence + 1, at.position + f.size()}
	}
}

// scanners are scanners whose memory is used again.
var scanners = sync.Pool{New: func() any { return new(scanner) }}

// before returns the last point that is not after a sequence, and the present end.
func (g *segment) before(sequence uint64) (at point, end int64, next uint64) {
	g.mu.Lock()
	defer g.mu.Unlock()
	low, high := 0, len(g.points)
	for high-low > 1 {
		if middle := (low + high) / 2; g.points[middle].sequence <= sequence {
			low = middle
		} else {
			high = middle
		}
	}
	return g.points[low], g.end, g.next
}

// entries returns the whole frames with which the first n bytes of a block begin, which were read at a place.
func (g *segment) entries(block *topic.Block, n int, at point) ([]topic.Entry, error) {
	var entries []topic.Entry
	b := block.Bytes[:n]
	for len(b) >= headerBytes {
		f, ok := parseHeader(b, g.salt)
		if !ok || f.sequence != at.sequence {
			return nil, g.damage(at.position, fmt.Sprintf("entry %d should be here", at.sequence))
		}
		size := f.size()
		if size > int64(len(b)) {
			break
		}
		data := b[headerBytes:size:size]
		if sumOf(data) != f.sum {
			return nil, g.damage(at.position, fmt.Sprintf("the data of entry %d has changed", at.sequence))
		}
		entries = append(entries, topic.Entry{Sequence: f.sequence, Mark: f.mark, Data: data, Block: block, Sum: f.sum})
		b, at = b[size:], point{at.sequence + 1, at.position + size}
	}
	if len(entries) == 0 {
		return nil, g.damage(at.position, fmt.Sprintf("entry %d is not whole", at.sequence))
	}
	return entries, nil
}

func (g *segment) damage(at int64, why string) error {
	return &DamageError{Path: g.base + segmentEnding, Position: at, Why: why}
}

// missing returns the error of a segment that should be there.
func (g *segment) missing(err error) error {
	if errors.Is(err, os.ErrNotExist) {
		return g.damage(0, "the file is missing")
	}
	return err
}

// openFiles bounds the open files of segments: the one whose last use is longest ago is
// closed first.
type openFiles struct {
	most int

	mu    sync.Mutex
	order list.List // of *segment, the last used first
}

// used marks a segment, whose file is open, as used now.
func (o *openFiles) used(g *segment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g.element != nil {
		o.order.MoveToFront(g.element)
		return
	}
	g.element = o.order.PushFront(g)
	for e := o.order.Back(); e != nil && o.order.Len() > o.most; {
		victim, before := e.Value.(*segment), e.Prev()
		if victim.mu.TryLock() {
			if victim.uses == 0 {
				victim.close()
				o.order.Remove(e)
				victim.element = nil
			}
			victim.mu.Unlock()
		}
		e = before
	}
}

// forget is called when a segment is removed.
func (o *openFiles) forget(g *segment) {
	o.mu.Lock()
	defer o.mu.Unlock()
	if g.element != nil {
		o.order.Remove(g.element)
		g.element = nil
	}
}
