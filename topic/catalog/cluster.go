package catalog

import (
	"context"
	"encoding/base64"
	"errors"

	"github.com/sluice-project/sluice/topic"
)

// ProducerIDsKey is the key of the last block of producer ids.
const (
	ProducerIDsKey = "producer-ids"
)

const clusterKey = "cluster"

// ClusterID returns the identity of the cluster, which is created at the first start.
func ClusterID(ctx context.Context, meta topic.Meta) (string, error) {
	item, err := meta.Get(ctx, clusterKey)
	if !errors.Is(err, topic.ErrNotFound) {
		return string(item.Value), err
	}
	id := topic.NewID()
	made := base64.RawURLEncoding.EncodeToString(id[:])
	if _, err = meta.Put(ctx, clusterKey, []byte(made), 0); err == nil {
		return made, nil
	}
	if !errors.Is(err, topic.ErrConflict) {
		return "", err
	}
	if err := meta.Sync(ctx); err != nil {
		return "", err
	}
	item, err = meta.Get(ctx, clusterKey)
	return string(item.Value), err
}
