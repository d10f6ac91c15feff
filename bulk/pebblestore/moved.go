package pebblestore

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// MovedFile is the file in a store's directory that says where the store is moved to.
const MovedFile = "bulk-moved.json"

// Moved says where a store is moved to.
type Moved struct {
	// ID names this move of this store.
	ID string `json:"id"`
	// To is the store that takes it over, for people to read: it has no password.
	To string `json:"to"`
	// BegunAt is when the move began, EndedAt when all was copied: from then on the
	// store is not opened any more. Zero while it is not.
	BegunAt time.Time `json:"begun_at"`
	EndedAt time.Time `json:"ended_at,omitzero"`
}

// MovedError: what the directory has was moved to another store.
type MovedError struct {
	Dir, File string
	Moved     Moved
}

func (e *MovedError) Error() string {
	return fmt.Sprintf("what bulk had in %s was moved to %s at %s, and goes on there; "+
		"to go on here all the same, from what was here then, remove the file %s: jobs that have run since then run again",
		e.Dir, e.Moved.To, e.Moved.EndedAt.UTC().Format(time.RFC3339), e.File)
}

// Moved is what the directory says of where the store is moved to; the zero value if it
// says nothing.
func (i *Image) Moved() (Moved, error) { return readMoved(i.fs, i.dir) }

// SetMoved makes the directory say where the store is moved to. The store itself is not
// changed. Once Moved.EndedAt is set, Open refuses the directory with a *MovedError.
func (i *Image) SetMoved(moved Moved) error {
	if err := i.writeMoved(moved); err != nil {
		return fmt.Errorf("note in %s where it is moved to: %w", i.dir, err)
	}
	return nil
}

func (i *Image) writeMoved(moved Moved) error {
	text, err := json.MarshalIndent(moved, "", "  ")
	if err != nil {
		return err
	}
	name := i.fs.PathJoin(i.dir, MovedFile)
	file, err := i.fs.Create(name+".new", vfs.WriteCategoryUnspecified)
	if err != nil {
		return err
	}
	_, err = file.Write(append(text, '\n'))
	if err := errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := i.fs.Rename(name+".new", name); err != nil {
		return err
	}
	dir, err := i.fs.OpenDir(i.dir)
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// maxMoved bounds the file: it is for people to touch.
const maxMoved = 64 << 10

func readMoved(files vfs.FS, dir string) (moved Moved, err error) {
	name := files.PathJoin(dir, MovedFile)
	file, err := files.Open(name)
	if errors.Is(err, fs.ErrNotExist) {
		return moved, nil
	}
	if err != nil {
		return moved, err
	}
	text, err := io.ReadAll(io.LimitReader(file, maxMoved))
	if err := errors.Join(err, file.Close()); err != nil {
		return moved, err
	}
	if err := json.Unmarshal(text, &moved); err != nil {
		return moved, fmt.Errorf("%s says where the store was moved to, and cannot be read: %w", name, err)
	}
	return moved, nil
}

// refuseMoved refuses a directory whose store was moved.
func refuseMoved(files vfs.FS, dir string) error {
	moved, err := readMoved(files, dir)
	if err == nil && !moved.EndedAt.IsZero() {
		err = &MovedError{Dir: dir, File: files.PathJoin(dir, MovedFile), Moved: moved}
	}
	return err
}
