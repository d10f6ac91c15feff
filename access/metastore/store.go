package metastore

import (
	"context"
	"errors"
	"strconv"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/topic"
)

// Key is the key of the document.
const Key = "access"

// Store is an access.Store in the metadata of topics.
type Store struct{ meta topic.Meta }

var _ access.Store = Store{}

// New returns the store in some metadata.
func New(meta topic.Meta) Store { return Store{meta} }

// Read implements access.Store. The version is the revision of the key.
func (s Store) Read(ctx context.Context) (document []byte, version string, err error) {
	if err := s.meta.Sync(ctx); err != nil {
		return nil, "", err
	}
	item, err := s.meta.Get(ctx, Key)
	if errors.Is(err, topic.ErrNotFound) {
		return nil, "", nil
	}
	return item.Value, versionOf(item.Revision), err
}

func versionOf(revision uint64) string { return strconv.FormatUint(revision, 10) }

// Write implements access.Store.
func (s Store) Write(ctx context.Context, document []byte, version string) (newVersion string, err error) {
	revision, err := strconv.ParseUint("0"+version, 10, 64)
	if err != nil {
		return "", access.ErrChanged // no version of this store
	}
	written, err := s.meta.Put(ctx, Key, document, revision)
	if errors.Is(err, topic.ErrConflict) {
		err = access.ErrChanged
	}
	return versionOf(written), err
}
