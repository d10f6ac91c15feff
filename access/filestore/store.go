package filestore

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"sync"

	"github.com/sluice-project/sluice/access"
)

// Name is the name of the file.
const Name = "access.json"

// Store is an access.Store in a file.
type Store struct {
	dir string
	mu  sync.Mutex
}

var _ access.Store = (*Store)(nil)

// New returns the store of a directory, which it makes when it first writes.
func New(dir string) *Store { return &Store{dir: dir} }

// Read implements access.Store. The version is the hash of the document.
func (s *Store) Read(context.Context) (document []byte, version string, err error) {
	document, err = os.ReadFile(filepath.Join(s.dir, Name))
	if errors.Is(err, fs.ErrNotExist) {
		return nil, "", nil
	}
	if err != nil {
		return nil, "", err
	}
	return document, access.Version(document), nil
}

// CopyTo puts the document, if there is one, into another directory, which it makes and which has none.
func (s *Store) CopyTo(ctx context.Context, dir string) error {
	document, _, err := s.Read(ctx)
	if err != nil || document == nil {
		return err
	}
	_, err = New(dir).Write(ctx, document, "")
	return err
}

// Write implements access.Store.
func (s *Store) Write(ctx context.Context, document []byte, version string) (newVersion string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, current, err := s.Read(ctx)
	if err != nil {
		return "", err
	}
	if current != version {
		return "", access.ErrChanged
	}
	if err := os.MkdirAll(s.dir, 0o700); err != nil {
		return "", err
	}
	return access.Version(document), replace(filepath.Join(s.dir, Name), document)
}

// replace replaces a file, durably.
func replace(path string, content []byte) error {
	written := path + ".new"
	if err := os.Remove(written); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	file, err := os.OpenFile(written, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if err != nil {
		return err
	}
	_, err = file.Write(content)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return err
	}
	if err := os.Rename(written, path); err != nil {
		return err
	}
	return syncFolder(filepath.Dir(path))
}

func syncFolder(dir string) error {
	folder, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(folder.Sync(), folder.Close())
}
