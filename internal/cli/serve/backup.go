package serve

import (
	"context"
	"errors"
	"log/slog"
	"path"
	"path/filepath"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/backup"
	"github.com/sluice-project/sluice/ops"
)

// serveBackup serves backups of what is in the data directory.
func serveBackup(settings *config.Config, server *ops.Server, topics *topics, bulk, rooms, accounts *part, log *slog.Logger) error {
	of := backup.Source{Data: settings.DataDir, Elsewhere: map[string]string{}, Logger: log}
	if bulk.checkpoint != nil {
		of.Parts = append(of.Parts, "bulk", "room")
	} else if !settings.State.IsOff() {
		of.Elsewhere["bulk"], of.Elsewhere["room"] = settings.State.String(), settings.State.String()
	}
	if topics.files != nil {
		of.Parts = append(of.Parts, "topic")
	}
	switch {
	case topics.member != nil:
		of.Refusal = "the nodes of a cluster keep copies of its topics, and one node is no copy of the cluster: " +
			"keep three replicas or more, and copy topics with `sluice topic consume` (docs/topic/cluster.md); back up Redis with its own means"
	case len(of.Parts) == 0:
		of.Refusal = "nothing is kept in the data directory: back up " + settings.State.String() + " with its own means, such as BGSAVE (docs/bulk/redis.md)"
	}
	of.Snapshot = func(ctx context.Context, dir string) (map[string]int64, error) {
		// Bulk and rooms publish events to topics, and jobs may come from there. While topics stand
		// still nothing is published, so all parts are as of one moment.
		state := func() error {
			var err error
			if bulk.checkpoint != nil {
				err = bulk.checkpoint(ctx, dir)
			}
			if rooms.checkpoint != nil {
				err = errors.Join(err, rooms.checkpoint(ctx, filepath.Join(dir, roomFolder)))
			}
			if accounts.checkpoint != nil {
				err = errors.Join(err, accounts.checkpoint(ctx, dir))
			}
			return err
		}
		if topics.files == nil {
			return nil, state()
		}
		sizes, err := topics.files.Checkpoint(filepath.Join(dir, topicFolder), state)
		below := make(map[string]int64, len(sizes))
		for name, size := range sizes {
			below[path.Join(topicFolder, name)] = size
		}
		return below, err
	}
	return backup.Register(server.API(), of)
}
