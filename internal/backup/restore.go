package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
)

// ErrNotEmpty is the error of restoring into a folder that has something.
var ErrNotEmpty = errors.New("the directory is not empty: a backup is restored into one of its own")

// Archive is a backup to restore, and what errors call it.
type Archive struct {
	Name string
	From io.Reader
}

// BaseError reports that a backup does not continue the one that was named before it.
type BaseError struct {
	// Name is the backup, and Want is its base; nil: it is a full one.
	Name string
	Want *Reference
	// Before is the one before it, and Got what that is; nil: none is before it.
	Before string
	Got    *Reference
}

func (e *BaseError) Error() string {
	switch {
	case e.Want == nil:
		return fmt.Sprintf("%s is a full backup: name it first, or alone", e.Name)
	case e.Got == nil:
		return fmt.Sprintf("%s is incremental: name its base before it, %v", e.Name, *e.Want)
	}
	return fmt.Sprintf("%s continues %v, but %s before it is %v", e.Name, *e.Want, e.Before, *e.Got)
}

// Restore makes the folder dir from a full backup and those that continue it, each named after its base.
// Until everything is there, checked and durable, the files are in a folder with the ending .restoring,
// which the next call replaces. Errors: ErrNotEmpty, *BaseError, *DamageError, and those of describe.
func Restore(ctx context.Context, dir string, describe func(Description) error, backups ...Archive) error {
	if names, err := os.ReadDir(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	} else if len(names) > 0 {
		return fmt.Errorf("%s: %w", dir, ErrNotEmpty)
	}
	dir = filepath.Clean(dir)
	temporary := dir + ".restoring"
	if err := errors.Join(os.RemoveAll(temporary), os.MkdirAll(temporary, 0o700)); err != nil {
		return err
	}
	if err := extract(ctx, temporary, describe, backups); err != nil {
		return errors.Join(err, os.RemoveAll(temporary))
	}
	if err := os.Remove(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if err := os.Rename(temporary, dir); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(dir))
}

func extract(ctx context.Context, dir string, describe func(Description) error, backups []Archive) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	r := restoring{root: root, describe: describe}
	for _, a := range backups {
		if err = r.add(ctx, a); err != nil {
			break
		}
	}
	if err == nil {
		err = syncFolders(dir)
	}
	return errors.Join(err, root.Close())
}

// restoring is a folder that has the files of one backup, and gets those of the next.
type restoring struct {
	root     *os.Root
	describe func(Description) error
	before   string // the name of the backup whose files it has
	has      *Inventory
}

func (r *restoring) add(ctx context.Context, a Archive) error {
	var base *BaseError
	next, err := Read(cancelable{ctx, a.From}, func(d Description) error {
		if base = r.continues(a.Name, d.Base); base != nil {
			return base
		}
		return r.describe(d)
	}, r.write)
	switch {
	case base != nil:
		return base
	case err != nil:
		return fmt.Errorf("%s: %w", a.Name, err)
	}
	if err := r.removeAllBut(next); err != nil {
		return err
	}
	r.before, r.has = a.Name, next
	return nil
}

// continues returns an error unless a backup with that base continues the one whose files are there.
func (r *restoring) continues(name string, base *Reference) *BaseError {
	e := &BaseError{Name: name, Want: base, Before: r.before}
	if r.has != nil {
		e.Got = &r.has.Reference
	}
	if base == nil && e.Got == nil || base != nil && e.Got != nil && base.ID == e.Got.ID {
		return nil
	}
	return e
}

// write writes what a backup has of a file. The bytes before it were checked when they were written.
func (r *restoring) write(of Entry, content io.Reader) error {
	flags := os.O_WRONLY | os.O_APPEND
	switch {
	case of.Base.Size == 0:
		flags = os.O_WRONLY | os.O_CREATE | os.O_EXCL
		if err := r.makeWay(of.Name); err != nil {
			return err
		}
	case r.has == nil || r.has.Files[of.Name] != of.Base:
		return &DamageError{of.Name, "it continues a file that the base does not have"}
	case of.Size == 0:
		return nil
	}
	file, err := r.root.OpenFile(of.Name, flags, 0o600)
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	return errors.Join(err, file.Sync(), file.Close())
}

// makeWay makes the folder of a file, and removes what the base has in its place.
func (r *restoring) makeWay(name string) error {
	if r.has != nil {
		if _, exists := r.has.Files[name]; exists {
			return r.root.Remove(name)
		}
	}
	return r.root.MkdirAll(path.Dir(name), 0o700)
}

// removeAllBut removes the files that the next backup does not have, and the folders that are empty then.
func (r *restoring) removeAllBut(next *Inventory) error {
	if r.has == nil {
		return nil
	}
	for _, name := range slices.Sorted(maps.Keys(r.has.Files)) {
		if _, stays := next.Files[name]; stays {
			continue
		}
		if err := r.root.Remove(name); err != nil {
			return err
		}
		for folder := path.Dir(name); folder != "." && r.root.Remove(folder) == nil; {
			folder = path.Dir(folder)
		}
	}
	return nil
}

// syncFolders makes the names of all files durable.
func syncFolders(dir string) error {
	return filepath.WalkDir(dir, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || !entry.IsDir() {
			return err
		}
		return syncFolder(path)
	})
}

func syncFolder(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
