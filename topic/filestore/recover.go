package filestore

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// recover finds the end of the last segment of a log, and makes everything before it durable.
// The caller holds mu.
func (g *segment) recover(size int64) error {
	scan := scanner{file: g.file, salt: g.salt, size: size, step: scanBytes}
	start := g.lastPoint()
	at, durable := start, start.position
	for {
		f, ok, err := scan.whole(at.position)
		if err != nil {
			return err
		}
		if !ok || f.sequence != at.sequence {
			break
		}
		g.addPoint(at)
		durable = max(durable, f.durable)
		at = point{at.sequence + 1, at.position + f.size()}
	}
	behind, err := scan.rest(at.position)
	if err != nil {
		return err
	}
	if behind.durable > at.position {
		return g.damage(at.position, fmt.Sprintf("entry %d should be here: it was durable, since later ones say so", at.sequence))
	}
	g.end, g.next = at.position, at.sequence
	switch {
	case at == start && behind.used == at.position:
		return nil
	case g.store.readOnly && behind.used > at.position:
		return &NoticeError{g.base + segmentEnding, fmt.Sprintf(
			"entry %d at byte %d is not whole: the next start cuts it off, as a write that was in progress when the machine stopped", at.sequence, at.position)}
	case g.store.readOnly:
		return nil
	}
	if behind.used > at.position {
		g.store.log.Warn("the end of a log was not written whole before the last stop, and is cut off: none of it was acknowledged as durable",
			"file", g.base+segmentEnding, "entry", at.sequence, "bytes", behind.used-at.position)
	}
	if err := g.rewrite(durable, at.position); err != nil {
		return err
	}
	if err := g.clear(at.position, behind.used); err != nil {
		return err
	}
	return g.file.SyncData()
}

// rewrite writes a part of the file as it is, so that the next sync writes it to the disk.
func (g *segment) rewrite(from, to int64) error {
	b := make([]byte, min(scanBytes, to-from))
	for ; from < to; from += int64(len(b)) {
		b = b[:min(int64(len(b)), to-from)]
		if _, err := g.file.ReadAt(b, from); err != nil {
			return err
		}
		if _, err := g.file.WriteAt(b, from); err != nil {
			return err
		}
	}
	return nil
}

// clear overwrites a part of the file with zeros.
func (g *segment) clear(from, to int64) error {
	zeros := make([]byte, min(scanBytes, to-from))
	for ; from < to; from += int64(len(zeros)) {
		zeros = zeros[:min(int64(len(zeros)), to-from)]
		if _, err := g.file.WriteAt(zeros, from); err != nil {
			return err
		}
	}
	return nil
}

// load finds the log's segments, and opens the last one.
func (l *log) load() error {
	firsts, err := l.list()
	if err != nil {
		return err
	}
	if len(firsts) == 0 || firsts[0] > l.first {
		return &DamageError{Path: l.dir, Why: fmt.Sprintf("no file has entry %d, which the log should begin with", l.first)}
	}
	for i, first := range firsts {
		g := l.store.segment(l.dir, first)
		if i < len(firsts)-1 {
			if g.next = firsts[i+1]; g.next <= l.first { // trimmed before the last stop
				if !l.store.readOnly {
					if err := g.remove(); err != nil {
						return err
					}
				}
				continue
			}
		}
		l.segments = append(l.segments, g)
	}
	last := l.active()
	if err := last.use(); err != nil {
		return err
	}
	defer last.unuse()
	l.durable, l.last, l.queued = last.end, last.next-1, last.next-1
	if l.first > last.next {
		return last.damage(last.end, fmt.Sprintf("it ends with entry %d, and the entries up to %d were trimmed", l.last, l.first-1))
	}
	return nil
}

// list returns the first sequences of the log's segments, in order, and removes segments that
// were not made whole.
func (l *log) list() ([]uint64, error) {
	names, err := l.store.fs.List(l.dir)
	if err != nil {
		return nil, err
	}
	var firsts []uint64
	for _, name := range names {
		if strings.HasSuffix(name, newEnding) && !l.store.readOnly {
			if err := l.store.fs.Remove(l.store.fs.PathJoin(l.dir, name)); err != nil {
				return nil, err
			}
		}
		if digits, ok := strings.CutSuffix(name, segmentEnding); ok {
			first, err := strconv.ParseUint(digits, 10, 64)
			if err != nil {
				return nil, &DamageError{Path: l.store.fs.PathJoin(l.dir, name), Why: "it is not named after a sequence"}
			}
			firsts = append(firsts, first)
		}
	}
	slices.Sort(firsts)
	return firsts, nil
}
