package filestore

import (
	"errors"
	"path"
	"strings"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

// Checkpoint puts the store into a folder that it makes, as of one moment: what a kill at that
// moment would leave, with everything acknowledged before. At that moment nothing is written,
// and the function during is called; appends and changes of the metadata wait for it.
//
// The files are links where the file system has them. Those that grow have more than what
// belongs to the checkpoint: sizes has how much of them does, by their path below dir, with
// slashes.
func (s *Store) Checkpoint(dir string, during func() error) (sizes map[string]int64, err error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.running.Done()
	s.layout.Lock()
	defer s.layout.Unlock()
	grown, err := s.freeze(s.fs.PathJoin(dir, metaDir), during)
	if err != nil {
		return nil, err
	}
	sizes = map[string]int64{}
	for name, record := range s.catalog.all() {
		from := s.logDir(name, record.id)
		folder := path.Join(logsDir, s.fs.PathBase(from))
		if err := s.linkLog(from, s.fs.PathJoin(dir, folder), grown[name].file); err != nil {
			return nil, err
		}
		if g, open := grown[name]; open {
			sizes[path.Join(folder, g.file+segmentEnding)] = g.end
			sizes[path.Join(folder, g.file+pointsEnding)] = g.points
		}
	}
	if err := s.fs.MkdirAll(s.fs.PathJoin(dir, logsDir), 0o755); err != nil { // there may be no log
		return nil, err
	}
	return sizes, vfs.LinkOrCopy(s.fs, s.fs.PathJoin(s.dir, formatFile), s.fs.PathJoin(dir, formatFile))
}

// growing is the last segment of a log at one moment.
type growing struct {
	file        string // its name without the ending
	end, points int64  // the lengths of the segment and of its points file
}

// freeze stops all writing, puts the metadata into a folder, and returns where the open logs end.
func (s *Store) freeze(metaTo string, during func() error) (map[string]growing, error) {
	s.frozen.Lock()
	defer s.frozen.Unlock()
	if err := s.Err(); err != nil {
		return nil, err
	}
	grown := map[string]growing{}
	for _, l := range s.openLogs() {
		grown[l.name] = l.growing()
	}
	return grown, errors.Join(during(), pebblekv.Checkpoint(s.db, metaTo))
}

func (l *log) growing() growing {
	l.mu.Lock()
	g := l.active()
	l.mu.Unlock()
	g.mu.Lock()
	defer g.mu.Unlock()
	return growing{file: l.store.fs.PathBase(g.base), end: g.end, points: int64(g.kept) * pointBytes}
}

// linkLog links the files of a log, up to the segment last; all of them if that is empty, as of
// a log that cannot be opened. The caller holds layout.
func (s *Store) linkLog(from, to, last string) error {
	if err := s.fs.MkdirAll(to, 0o755); err != nil {
		return err
	}
	names, err := s.fs.List(from)
	if err != nil {
		return err
	}
	for _, name := range names {
		if base, _, _ := strings.Cut(name, "."); strings.HasSuffix(name, newEnding) || last != "" && base > last {
			continue // not made whole, or begun since
		}
		if err := vfs.LinkOrCopy(s.fs, s.fs.PathJoin(from, name), s.fs.PathJoin(to, name)); err != nil {
			return err
		}
	}
	return nil
}
