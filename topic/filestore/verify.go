package filestore

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"slices"

	"github.com/cockroachdb/pebble/v2"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

// NoticeError reports what a power cut may leave, and the next start mends: points that are torn,
// or an entry that was being written. A file that is damaged at its very end looks the same.
type NoticeError struct {
	// Path is the file, Why says what is wrong.
	Path, Why string
}

func (e *NoticeError) Error() string { return e.Path + ": " + e.Why }

// Verify reads all files of the store in a directory, without changing it, and returns what is
// wrong: *FormatError, ErrInUse, *DamageError, *NoticeError, and errors of the database of the
// metadata. Without that database no log can be found. It uses FS of options. Progress is called
// with the bytes of logs that were read.
func Verify(ctx context.Context, dir string, options Options, progress func(bytes int64)) []error {
	options.Logger = slog.New(slog.DiscardHandler)
	s := newStore(dir, options.withDefaults())
	s.readOnly = true
	if err := readFormat(s.fs, dir); err != nil {
		if errors.Is(err, os.ErrNotExist) {
			err = &DamageError{Path: s.fs.PathJoin(dir, formatFile), Why: "the file is missing"}
		}
		return []error{err}
	}
	var logs []error
	problems := pebblekv.Verify(ctx, s.fs, s.fs.PathJoin(dir, metaDir), keyFormat, metaFormat, metaFormat, func(db *pebble.DB) (err error) {
		s.db = db
		if s.catalog, err = loadCatalog(s); err != nil {
			return err
		}
		for _, name := range slices.Sorted(maps.Keys(s.catalog.logs)) {
			record := s.catalog.logs[name]
			l := &log{store: s, name: name, id: record.id, dir: s.logDir(name, record.id), first: record.first}
			logs = append(logs, l.verify(ctx, progress)...)
		}
		return nil
	})
	return append(problems, logs...)
}

// verify reads all entries of a log.
func (l *log) verify(ctx context.Context, progress func(int64)) (problems []error) {
	defer l.retire()
	err := l.load()
	if errors.Is(err, os.ErrNotExist) {
		err = &DamageError{Path: l.dir, Why: "the folder is missing"}
	}
	if err != nil {
		problems = append(problems, err)
	}
	for _, g := range l.segments {
		for _, found := range g.verify(ctx, progress) {
			if err == nil || found.Error() != err.Error() { // load has found it too
				problems = append(problems, found)
			}
		}
	}
	return problems
}

// verify reads all frames of a segment.
func (g *segment) verify(ctx context.Context, progress func(int64)) (problems []error) {
	if err := g.use(); err != nil {
		return []error{err}
	}
	defer g.unuse()
	if info, err := g.store.fs.Stat(g.base + pointsEnding); err == nil && info.Size() != int64(g.kept)*pointBytes {
		problems = append(problems, &NoticeError{g.base + pointsEnding, "some of its points do not count: the segment takes longer to open"})
	}
	scan := scanner{file: g.file, salt: g.salt, size: g.end, step: scanBytes}
	for at := (point{g.first, preambleBytes}); at.position < g.end; {
		f, ok, err := scan.whole(at.position)
		if err = errors.Join(err, ctx.Err()); err != nil {
			return append(problems, fmt.Errorf("read %s: %w", g.base+segmentEnding, err))
		}
		if !ok || f.sequence != at.sequence {
			return append(problems, g.damage(at.position, fmt.Sprintf("entry %d should be here", at.sequence)))
		}
		progress(f.size())
		at = point{at.sequence + 1, at.position + f.size()}
	}
	return problems
}
