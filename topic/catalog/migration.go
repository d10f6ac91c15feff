package catalog

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/sluice-project/sluice/topic"
)

const (
	// MovedKey is the key of the migration of this store into a cluster.
	MovedKey    = "moved"
	movedFormat = 1
)

// MigrationState is the state of a store of one node in a migration.
type MigrationState string

// The states of a store of one node.
const (
	// Serving: it serves; it was never fenced, or the fence was removed.
	Serving MigrationState = "serving"
	// Fenced: its data is final for now. It accepts no appends, no commits, and no
	// group requests.
	Fenced MigrationState = "fenced"
	// Migrated: the cluster serves its topics. It only redirects clients.
	Migrated MigrationState = "moved"
)

// Migration is a store's record of its migration into a cluster.
type Migration struct {
	Format int            `json:"format"`
	State  MigrationState `json:"state"`
	// Cluster is the identity of the cluster. Run is the number of the attempt, as
	// counted by the cluster: a fence of an earlier attempt is refused.
	Cluster string `json:"cluster,omitempty"`
	Run     int64  `json:"run,omitempty"`
	// Nodes are the addresses of the topics after the migration.
	Nodes []Address `json:"nodes,omitempty"`
	// AtMS is when the state was written, in milliseconds since the epoch.
	AtMS int64 `json:"at_ms,omitempty"`
}

// Address is the address for the clients of a node.
type Address struct {
	ID   int32  `json:"id"`
	Host string `json:"host"`
	Port int32  `json:"port"`
	Rack string `json:"rack,omitempty"`
	// Listeners are as in topic.Advertised.
	Listeners map[string]string `json:"listeners,omitempty"`
}

// MigratedError reports that the topics of a store are in a cluster now, or are being
// migrated into another one.
type MigratedError struct{ Migration Migration }

func (e *MigratedError) Error() string {
	if e.Migration.State != Migrated {
		return fmt.Sprintf("topics are being moved to the cluster %s: let that end, or take it back with --abort", e.Migration.Cluster)
	}
	at := ""
	for _, node := range e.Migration.Nodes {
		at += fmt.Sprintf(" %s:%d", node.Host, node.Port)
	}
	return fmt.Sprintf("topics have moved to the cluster %s; connect there:%s", e.Migration.Cluster, at)
}

// ReadMigration returns a store's migration record, and its revision.
func ReadMigration(ctx context.Context, meta topic.Meta) (Migration, uint64, error) {
	item, err := Get(ctx, meta, MovedKey)
	if err != nil || item.Revision == 0 {
		return Migration{State: Serving}, 0, err
	}
	var move Migration
	if err := json.Unmarshal(item.Value, &move); err != nil {
		return move, 0, fmt.Errorf("metadata of %s: %w", MovedKey, err)
	}
	if move.Format != movedFormat {
		return move, 0, fmt.Errorf("metadata of %s: format %d; this version reads %d: upgrade this node", MovedKey, move.Format, movedFormat)
	}
	return move, item.Revision, nil
}

// ChangeMigration replaces a store's migration record, unless allowed returns an error.
func ChangeMigration(ctx context.Context, meta topic.Meta, next Migration, allowed func(Migration) error) (uint64, error) {
	next.Format = movedFormat
	for range StoreAttempts {
		now, revision, err := ReadMigration(ctx, meta)
		if err != nil {
			return 0, err
		}
		if err := allowed(now); err != nil {
			return 0, err
		}
		if now.State == next.State && now.Cluster == next.Cluster && now.Run == next.Run && revision != 0 {
			return revision, nil
		}
		next.AtMS = time.Now().UnixMilli()
		value, err := json.Marshal(next)
		if err != nil {
			return 0, err
		}
		revision, err = meta.Put(ctx, MovedKey, value, revision)
		if err == nil || !Uncertain(err) {
			return revision, err
		}
	}
	return 0, fmt.Errorf("%q: %w, %d times", MovedKey, topic.ErrConflict, StoreAttempts)
}

// MayFence refuses a fence of another cluster, or of an attempt before the last.
func MayFence(now, next Migration) error {
	switch {
	case now.State == Migrated, now.State == Fenced && now.Cluster != next.Cluster:
		return &MigratedError{now}
	case now.Cluster == next.Cluster && now.Run > next.Run:
		return fmt.Errorf("%w: attempt %d to move to the cluster %s is over, %d goes on", topic.ErrConflict, next.Run, next.Cluster, now.Run)
	}
	return nil
}

// MayUnfence refuses to remove a fence of another cluster, or of a later attempt.
func MayUnfence(now, next Migration) error {
	if now.State == Serving {
		return nil
	}
	return MayFence(now, next)
}

// MayBeDone refuses to complete the migration of a store that is not fenced for that
// cluster.
func MayBeDone(cluster string) func(Migration) error {
	return func(now Migration) error {
		switch {
		case now.State == Serving:
			return fmt.Errorf("%w: the store is not fenced", topic.ErrConflict)
		case now.Cluster != cluster:
			return &MigratedError{now}
		}
		return nil
	}
}
