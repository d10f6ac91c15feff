package bench

import (
	"context"
	"errors"

	"github.com/sluice-project/sluice/bulk/redisstore"
)

// Appendfsyncs are the settings of Redis that are compared: acknowledged writes are on the disk, or
// those of the last second may be lost.
var Appendfsyncs = []string{"always", "everysec"}

// openSluiceOnRedis opens a queue on a Redis of its own.
func openSluiceOnRedis(ctx context.Context, folder, appendfsync string, workload Workload) (*sluiceQueue, error) {
	redis, err := startRedis(ctx, folder, appendfsync)
	if err != nil {
		return nil, err
	}
	store, err := redisstore.Open(ctx, redisstore.Options{URL: "unix://" + redis.socket, Bulk: sluiceConfig, Logger: quiet})
	if err != nil {
		return nil, errors.Join(err, redis.stop())
	}
	return newSluiceQueue(ctx, store, redis.stop, workload)
}
