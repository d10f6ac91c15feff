package backup

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
)

// ErrNotEmpty is the error of restoring into a folder that has something.
var ErrNotEmpty = errors.New("the directory is not empty: a backup is restored into one of its own")

// Restore makes the folder dir from a backup. Until everything is there, checked and durable, the
// files are in a folder with the ending .restoring, which the next call replaces.
func Restore(ctx context.Context, from io.Reader, dir string, describe func(Description) error) error {
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
	if err := extract(cancelable{ctx, from}, temporary, describe); err != nil {
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

func extract(from io.Reader, dir string, describe func(Description) error) error {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return err
	}
	folders := map[string]bool{".": true}
	err = Read(from, describe, func(name string, _ int64, content io.Reader) error {
		for folder := path.Dir(name); !folders[folder]; folder = path.Dir(folder) {
			folders[folder] = true
		}
		if err := root.MkdirAll(path.Dir(name), 0o700); err != nil {
			return err
		}
		file, err := root.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
		if err != nil {
			return err
		}
		_, err = io.Copy(file, content)
		return errors.Join(err, file.Sync(), file.Close())
	})
	for folder := range folders {
		err = errors.Join(err, syncFolder(filepath.Join(dir, filepath.FromSlash(folder))))
	}
	return errors.Join(err, root.Close())
}

func syncFolder(dir string) error {
	file, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(file.Sync(), file.Close())
}
