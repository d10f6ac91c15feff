package catalog

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/sluice-project/sluice/topic"
)

// ImportState is the state of an import.
type ImportState string

// The states of an import.
const (
	// ImportCopying: logs are being copied; the import may be aborted.
	ImportCopying ImportState = "copying"
	// ImportOpening: all logs are copied; the import can only be completed.
	ImportOpening ImportState = "opening"
	// ImportOpen: the cluster serves the topics.
	ImportOpen ImportState = "open"
	// ImportAborted: the import was aborted. Its copied data may be removed.
	ImportAborted ImportState = "aborted"
)

const (
	// ImportsPrefix begins the keys of imports.
	ImportsPrefix = "imports/"
	// ImportFormat is the version of what is stored of an import.
	ImportFormat = 1
)

// Import is the record of an import, by the identity of its source store.
type Import struct {
	Format int         `json:"format"`
	State  ImportState `json:"state"`
	// Run counts the attempts: only the last one may continue.
	Run    int64         `json:"run"`
	Topics []ImportTopic `json:"topics,omitempty"`
}

// ImportTopic is a topic that is imported.
type ImportTopic struct {
	Name     string    `json:"name"`
	ID       string    `json:"id"`
	Delays   bool      `json:"delays,omitempty"`
	Replicas [][]int32 `json:"replicas,omitempty"` // by partition
	// Removals is how often a partition of each number was removed before.
	Removals map[int]int `json:"removals,omitempty"`
	// Epochs are the leader epochs at the ends of the partitions' logs, once all logs
	// are copied.
	Epochs []int32 `json:"epochs,omitempty"`
}

func (t ImportTopic) names(number int) Names {
	id, _ := topic.ParseID(t.ID) // checked when it was planned
	return NamesOf(id, int32(number), t.Removals[number])
}

// Nodes returns the nodes that keep a log; ok is false if it is not one of the topic's.
func (t ImportTopic) Nodes(log string) (nodes []int32, ok bool) {
	for number, nodes := range t.Replicas {
		if names := t.names(number); log == names.Records || t.Delays && log == names.Delays {
			return nodes, true
		}
	}
	return nil, false
}

// Logs returns the names of the topic's logs.
func (t ImportTopic) Logs() (all []string) {
	for number := range t.Replicas {
		names := t.names(number)
		all = append(all, names.Records)
		if t.Delays {
			all = append(all, names.Delays)
		}
	}
	return all
}

// Opening calls each with the topics that imports are about to open: they are not in the
// catalog yet, but groups have offsets in them.
func Opening(ctx context.Context, meta topic.Meta, each func(topic string)) error {
	items, err := meta.List(ctx, ImportsPrefix)
	if err != nil {
		return err
	}
	for _, item := range items {
		var record Import
		if err := json.Unmarshal(item.Value, &record); err != nil {
			return fmt.Errorf("metadata %q: %w", item.Key, err)
		}
		if record.Format != ImportFormat {
			return fmt.Errorf("metadata %q: format %d; this version reads %d: upgrade this node", item.Key, record.Format, ImportFormat)
		}
		if record.State != ImportOpening {
			continue
		}
		for _, topic := range record.Topics {
			each(topic.Name)
		}
	}
	return nil
}
