package filestore

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/sluice-project/sluice/internal/pebblekv"
)

const (
	formatFile = "FORMAT"
	formatText = "sluice topic, files, format 1\n"
	lockFile   = "LOCK"
	logsDir    = "logs"
	metaDir    = "meta"
)

// ErrInUse is the error of opening a store that another process has open.
var ErrInUse = pebblekv.ErrInUse

// FormatError reports that a directory belongs to another kind of store, or to a newer
// release.
type FormatError struct {
	// Dir is the directory. Found is the mark in it, empty if it has files and no mark.
	Dir, Found string
}

// Clustered reports whether the directory is of a node of a cluster.
func (e *FormatError) Clustered() bool { return strings.HasPrefix(e.Found, "sluice topic, cluster ") }

// Standalone reports whether the directory is of a single server of an earlier release, which
// kept its topics in JetStream.
func (e *FormatError) Standalone() bool { return e.Found == "sluice topic, standalone, format 1" }

func (e *FormatError) Error() string {
	switch {
	case e.Found == "":
		return fmt.Sprintf("%s is not empty and was not made by Sluice: choose another directory", e.Dir)
	case e.Standalone():
		return fmt.Sprintf("%s has the topics of a single server of an earlier release: convert them with `sluice topic convert --data %s`",
			e.Dir, filepath.Dir(e.Dir))
	}
	return fmt.Sprintf("%s is marked %q, want %q: open it in the mode and with the release that made it, or choose another directory",
		e.Dir, e.Found, strings.TrimSpace(formatText))
}

// lockDir makes the directory if there is none, and locks it until the result is closed.
func lockDir(fs vfs.FS, dir string) (io.Closer, error) {
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := fs.Lock(fs.PathJoin(dir, lockFile))
	if errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) {
		return nil, ErrInUse
	}
	return lock, err
}

// checkFormat refuses a directory with another mark, and marks an empty one.
func checkFormat(fs vfs.FS, dir string) error {
	if err := readFormat(fs, dir); !errors.Is(err, os.ErrNotExist) {
		return err
	}
	names, err := fs.List(dir)
	if err != nil {
		return err
	}
	for _, name := range names {
		switch name {
		case lockFile, formatFile + newEnding, logsDir:
		default:
			return &FormatError{Dir: dir}
		}
	}
	if err := fs.MkdirAll(fs.PathJoin(dir, logsDir), 0o755); err != nil {
		return err
	}
	return writeFormat(fs, dir)
}

// readFormat returns an error unless a directory has the mark: os.ErrNotExist if it has none.
func readFormat(fs vfs.FS, dir string) error {
	found, err := readFile(fs, fs.PathJoin(dir, formatFile))
	if err == nil && found != formatText {
		return &FormatError{Dir: dir, Found: strings.TrimSpace(found[:min(len(found), 200)])}
	}
	return err
}

// Adopt makes a closed store in another directory the store of dir, which has the mark of an
// earlier release, or an interrupted Adopt. The change of the mark is what decides: before it,
// dir is as it was but for files that this store ignores then; after it, dir is this store.
// Other files in dir stay.
func Adopt(dir, from string) error { return adopt(vfs.Default, dir, from) }

func adopt(fs vfs.FS, dir, from string) error {
	lock, err := lockDir(fs, dir)
	if err != nil {
		return err
	}
	for _, part := range []string{logsDir, metaDir} {
		err = errors.Join(err, fs.RemoveAll(fs.PathJoin(dir, part)))
		if err == nil {
			err = fs.Rename(fs.PathJoin(from, part), fs.PathJoin(dir, part))
		}
	}
	if err == nil {
		err = syncDir(fs, dir)
	}
	if err == nil {
		err = errors.Join(writeFormat(fs, dir), fs.RemoveAll(from))
	}
	return errors.Join(err, lock.Close())
}

func readFile(fs vfs.FS, path string) (string, error) {
	file, err := fs.Open(path)
	if err != nil {
		return "", err
	}
	content, err := io.ReadAll(file)
	return string(content), errors.Join(err, file.Close())
}

// writeFormat writes the mark atomically.
func writeFormat(fs vfs.FS, dir string) error {
	path := fs.PathJoin(dir, formatFile)
	file, err := fs.Create(path+newEnding, category)
	if err != nil {
		return err
	}
	_, err = file.Write([]byte(formatText))
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := fs.Rename(path+newEnding, path); err != nil {
		return err
	}
	return errors.Join(syncDir(fs, dir), syncDir(fs, fs.PathDir(dir)))
}

func (s *Store) syncDir(dir string) error { return syncDir(s.fs, dir) }

// syncDir makes the names in a directory durable.
func syncDir(fs vfs.FS, dir string) error {
	file, err := fs.OpenDir(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}

// logDir returns the directory of a log. The id distinguishes logs of the same name.
func (s *Store) logDir(name string, id uint64) string {
	return s.fs.PathJoin(s.dir, logsDir, fmt.Sprintf("%s.%d", name, id))
}

// validName reports whether a log may have that name.
func validName(name string) bool {
	if name == "" || len(name) > 200 {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < 'A' || c > 'Z') && (c < '0' || c > '9') && c != '-' && c != '_' {
			return false
		}
	}
	return true
}
