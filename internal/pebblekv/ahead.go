package pebblekv

import (
	"errors"
	"path/filepath"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	logEnding = ".log"
	// aheadMin and aheadMax bound the zeros that are written ahead of a log at a time: as much as it has.
	aheadMin = 64 << 10
	aheadMax = 1 << 20
)

// zeros is not written to.
var zeros [aheadMax]byte

// aheadFS is a file system whose logs have zeros behind their end. A sync of what is written over them leaves the length of
// the file and its blocks as they are, so that the disk's journal has nothing to write: it takes about half of the time.
type aheadFS struct{ vfs.FS }

func (f aheadFS) Unwrap() vfs.FS { return f.FS }

// Create makes a file.
func (f aheadFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.Create(name, category)
	if err != nil || filepath.Ext(name) != logEnding {
		return file, err
	}
	return &aheadFile{File: file}, nil
}

// ReuseForWrite makes a log of one that is not needed, which is written over.
func (f aheadFS) ReuseForWrite(old, name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	file, err := f.FS.ReuseForWrite(old, name, category)
	if err != nil || filepath.Ext(name) != logEnding {
		return file, err
	}
	info, err := file.Stat()
	if err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &aheadFile{File: file, ahead: info.Size()}, nil
}

// aheadFile is a log that is written from its beginning to its end.
type aheadFile struct {
	vfs.File
	end   int64 // of what was written
	ahead int64 // where the zeros end
}

// Write writes at the end. It is no error if there is no space for the zeros: the write itself will say so.
func (f *aheadFile) Write(p []byte) (int, error) {
	if next := f.end + int64(len(p)); next > f.ahead {
		more := min(max(f.end, aheadMin), aheadMax)
		_, _ = f.WriteAt(zeros[:more], next)
		f.ahead = next + more
	}
	n, err := f.File.Write(p)
	f.end += int64(n)
	return n, err
}
