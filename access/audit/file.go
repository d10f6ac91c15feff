package audit

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
)

// file appends entries to a file, and rotates it: FILE, FILE.1, and so on to the oldest. Its lines are in the page
// cache of the system when write returns: they survive the end of the process, and a power cut may take the last ones.
type file struct {
	path     string
	maxBytes int64
	keep     int

	open *os.File // nil: not yet, or not any more after a failure
	size int64
}

// write appends all entries or none of them, as far as the file system allows.
func (f *file) write(_ context.Context, entries []Entry) error {
	var lines bytes.Buffer
	to := json.NewEncoder(&lines)
	to.SetEscapeHTML(false)
	for i := range entries {
		if err := to.Encode(&entries[i]); err != nil {
			return err
		}
	}
	if err := f.makeRoom(int64(lines.Len())); err != nil {
		return err
	}
	n, err := f.open.Write(lines.Bytes())
	if err != nil {
		// The next opening ends a line that could not be taken back.
		return errors.Join(err, f.open.Truncate(f.size), f.close())
	}
	f.size += int64(n)
	return nil
}

// makeRoom opens the file, and rotates it if a number of bytes does not fit.
func (f *file) makeRoom(bytes int64) error {
	if err := f.reopen(); err != nil {
		return err
	}
	if f.size == 0 || f.size+bytes <= f.maxBytes {
		return nil
	}
	if err := f.close(); err != nil {
		return err
	}
	for n := f.keep; n > 0; n-- {
		if err := os.Rename(f.name(n-1), f.name(n)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return f.reopen()
}

// name returns the path of the file that was rotated n times.
func (f *file) name(n int) string {
	if n == 0 {
		return f.path
	}
	return fmt.Sprintf("%s.%d", f.path, n)
}

// reopen opens the file unless it is open. A crash may have torn the last line: it is ended, so that the next one
// starts on a new line.
func (f *file) reopen() error {
	if f.open != nil {
		return nil
	}
	if err := os.MkdirAll(filepath.Dir(f.path), 0o700); err != nil {
		return err
	}
	open, err := os.OpenFile(f.path, os.O_RDWR|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return err
	}
	f.open = open
	if f.size, err = endLine(open); err != nil {
		return errors.Join(err, f.close())
	}
	return nil
}

// endLine ends the last line of a file, and returns the size of the file.
func endLine(of *os.File) (size int64, err error) {
	info, err := of.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	last := make([]byte, 1)
	if _, err := of.ReadAt(last, info.Size()-1); err != nil || last[0] == '\n' {
		return info.Size(), err
	}
	_, err = of.WriteString("\n")
	return info.Size() + 1, err
}

func (f *file) close() error {
	if f.open == nil {
		return nil
	}
	err := f.open.Close()
	f.open = nil
	return err
}
