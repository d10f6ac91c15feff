package pebblekv

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/record"
	"github.com/cockroachdb/pebble/v2/sstable"
	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/wal"
)

// FileError is the error of a file of a database, or of its directory if the file is not known.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return e.Path + ": " + e.Err.Error() }

// Unwrap returns why the file is wrong.
func (e *FileError) Unwrap() error { return e.Err }

// errRecord is the error of a log or a manifest. A torn record at its end looks the same.
var errRecord = errors.New("a record is damaged, or was being written when the machine stopped: it and what follows are not read")

// Exists reports whether a directory has files of a database, also if some are missing.
func Exists(fs vfs.FS, dir string) bool {
	names, _ := fs.List(dir)
	for _, name := range names {
		if strings.HasPrefix(name, "MANIFEST-") || strings.HasPrefix(name, "OPTIONS-") || strings.HasPrefix(name, "marker.") || strings.HasSuffix(name, ".sst") {
			return true
		}
	}
	return false
}

// Verify reads all files of the database of a directory, without changing it, and returns what is
// wrong: a *FileError for each, which may be ErrInUse or a *VersionError. Key, oldest and known are
// those of Format. Use is called with the database if nothing is wrong; its error is returned.
func Verify(ctx context.Context, fs vfs.FS, dir string, key []byte, oldest, known uint64, use func(*pebble.DB) error) []error {
	db, err := Open(dir, slog.New(slog.DiscardHandler), pebble.Options{FS: fs, ReadOnly: true, MaxOpenFiles: 100})
	if errors.Is(err, ErrInUse) {
		return []error{&FileError{dir, err}}
	}
	problems := verifyFiles(ctx, fs, dir)
	if err == nil {
		if len(problems) == 0 { // or reading would panic
			err = verifyFormat(db, key, oldest, known)
		}
		if len(problems) == 0 && err == nil {
			err = use(db)
		}
		err = errors.Join(err, db.Close())
	}
	if err != nil {
		problems = append(problems, &FileError{dir, err})
	}
	return problems
}

func verifyFormat(db *pebble.DB, key []byte, oldest, known uint64) error {
	version, err := Get(db, key)
	if found, _ := binary.Uvarint(version); err == nil && (found < oldest || found > known) {
		return &VersionError{found, known}
	}
	return err
}

// verifyFiles checks the checksums of all tables, manifests and logs.
func verifyFiles(ctx context.Context, fs vfs.FS, dir string) (problems []error) {
	names, err := fs.List(dir)
	if err != nil {
		return []error{&FileError{dir, err}}
	}
	for _, name := range names {
		var err error
		switch path := fs.PathJoin(dir, name); {
		case strings.HasSuffix(name, ".sst"):
			err = verifyTable(ctx, fs, path)
		case strings.HasPrefix(name, "MANIFEST-"):
			err = verifyManifest(fs, path)
		}
		if err = cmp.Or(ctx.Err(), err); err != nil {
			problems = append(problems, &FileError{fs.PathJoin(dir, name), err})
		}
	}
	logs, err := wal.Scan(wal.Dir{FS: fs, Dirname: dir})
	if err != nil {
		return append(problems, &FileError{dir, err})
	}
	for _, log := range logs {
		if path, err := verifyLog(ctx, fs, log); err != nil {
			problems = append(problems, &FileError{path, err})
		}
	}
	return problems
}

// verifyTable checks all blocks of a table.
func verifyTable(ctx context.Context, fs vfs.FS, path string) (err error) {
	defer func() { // the decoder of a damaged table panics
		if p := recover(); p != nil {
			err = fmt.Errorf("it cannot be decoded: %v", p)
		}
	}()
	file, err := fs.Open(path)
	if err != nil {
		return err
	}
	readable, err := sstable.NewSimpleReadable(file)
	if err != nil {
		return err
	}
	reader, err := sstable.NewReader(ctx, readable, sstable.ReaderOptions{})
	if err != nil {
		return err // it has closed the file
	}
	return errors.Join(reader.ValidateBlockChecksums(), reader.Close())
}

// verifyManifest checks the records of a manifest. Pebble takes a damaged one for its end.
func verifyManifest(fs vfs.FS, path string) error {
	file, err := fs.Open(path)
	if err != nil {
		return err
	}
	reader := record.NewReader(file, 0)
	for err == nil {
		var content io.Reader
		if content, err = reader.Next(); err == nil {
			_, err = io.Copy(io.Discard, content)
		}
	}
	if errors.Is(err, io.EOF) {
		return file.Close()
	}
	return errors.Join(fmt.Errorf("%w: %w", errRecord, err), file.Close())
}

// verifyLog checks the records of a log. Pebble takes a damaged one for its end, unless it knows
// that more was durable.
func verifyLog(ctx context.Context, fs vfs.FS, log wal.LogicalLog) (path string, err error) {
	reader := log.OpenForRead()
	var at wal.Offset
	for err == nil {
		var content io.Reader
		if content, at, err = reader.NextRecord(); err == nil {
			_, err = io.Copy(io.Discard, content)
		}
		err = cmp.Or(err, ctx.Err())
	}
	err = cmp.Or(reader.Close(), err)
	if errors.Is(err, io.EOF) || ctx.Err() == nil && onlyZeros(fs, at.PhysicalFile, at.Physical) {
		return "", nil
	}
	return at.PhysicalFile, fmt.Errorf("at byte %d: %w: %w", at.Physical, errRecord, err)
}

// onlyZeros reports whether a file has nothing but reserved space from a position on.
func onlyZeros(fs vfs.FS, path string, from int64) bool {
	file, err := fs.Open(path)
	if err != nil {
		return false
	}
	content, err := io.ReadAll(io.NewSectionReader(file, from, 1<<62))
	return errors.Join(err, file.Close()) == nil && len(bytes.Trim(content, "\x00")) == 0
}
