package migrate

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/sluice-project/sluice/lifecycle"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/catalog"
	"github.com/sluice-project/sluice/topic/group"
)

// Import writes the export of another store into the store of a cluster. Nothing is in
// the catalog until the end, so that no topic is ever partly visible: [Import.Begin],
// then [Import.Log] and [Import.Append] for each log and [Import.Put] for the snapshots
// of producers, as often as there is new data. [Import.Commit], for which the other store
// must be fenced, is final; after it follow [Import.Put] for the groups and
// [Import.Open]. All calls may be repeated after a crash.
type Import struct {
	store topic.Store

	mu   sync.Mutex
	logs map[string]*importing // by name
}

// NewImport returns the import into a store.
func NewImport(store topic.Store) *Import {
	return &Import{store: store, logs: map[string]*importing{}}
}

// ErrImported reports that the topics of a store are in the cluster: it is too late to
// abort.
var ErrImported = errors.New("the topics are in the cluster already")

// ImportConflictError lists the names in the import that the cluster has already.
type ImportConflictError struct {
	Topics []string `json:"topics,omitempty"`
	Groups []string `json:"groups,omitempty"`
}

func (e *ImportConflictError) Error() string {
	var has []string
	if len(e.Topics) > 0 {
		has = append(has, "topics of the same name: "+abridged(e.Topics))
	}
	if len(e.Groups) > 0 {
		has = append(has, "groups of the same name: "+abridged(e.Groups))
	}
	return "the cluster has " + strings.Join(has, "; and ") + ": delete them there, or leave out those topics"
}

// abridged lists names; of a long list, the first ones and the number.
func abridged(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// ImportRequest asks for an import.
type ImportRequest struct {
	// Inventory is the source's present inventory: the request may be repeated when it
	// has changed.
	Inventory Inventory `json:"inventory"`
	// Replicas is how many nodes are to keep each partition; 0: three, or all
	// nodes if there are fewer.
	Replicas int `json:"replicas"`
	// Run is the attempt to continue; 0 begins a new one, and ends earlier ones.
	Run int64 `json:"run"`
	// DryRun only checks.
	DryRun bool `json:"dry_run"`
}

// ImportStatus is the progress of an import.
type ImportStatus struct {
	// Cluster is the identity of the target cluster.
	Cluster string              `json:"cluster"`
	Run     int64               `json:"run"`
	State   catalog.ImportState `json:"state"`
	// Replicas is how many nodes will keep each partition.
	Replicas int `json:"replicas"`
	// Compacts reports whether all nodes can compact topics: those of earlier versions cannot.
	Compacts bool `json:"compacts"`
	// Nodes are the addresses of the topics after the import.
	Nodes []catalog.Address `json:"nodes"`
}

// Begin begins an import, or continues it. Errors: *ImportConflictError,
// ErrInvalidReplicas; ErrConflict if the attempt is not the last one.
func (m *Import) Begin(ctx context.Context, request ImportRequest) (ImportStatus, error) {
	if err := m.store.Meta().Sync(ctx); err != nil {
		return ImportStatus{}, err
	}
	for range catalog.StoreAttempts {
		status, again, err := m.begin(ctx, request)
		if !again {
			return status, err
		}
	}
	return ImportStatus{}, fmt.Errorf("import of %s: %w, %d times", request.Inventory.Cluster, topic.ErrConflict, catalog.StoreAttempts)
}

func (m *Import) begin(ctx context.Context, request ImportRequest) (status ImportStatus, again bool, err error) {
	source := request.Inventory.Cluster
	record, revision, err := m.read(ctx, source)
	if err != nil {
		return status, false, err
	}
	if request.Run != 0 && request.Run != record.Run {
		return status, false, overtaken(source, request.Run, record.Run)
	}
	status.Nodes, status.Compacts, err = m.addresses(ctx)
	if err == nil {
		status.Cluster, err = catalog.ClusterID(ctx, m.store.Meta())
	}
	if err != nil {
		return status, false, err
	}
	if request.Run == 0 && revision != 0 && !request.DryRun {
		// Even if this attempt fails, earlier ones can do nothing more.
		record.Run++
		request.Run = record.Run
		if revision, err = m.write(ctx, source, record, revision); err != nil {
			return status, catalog.Uncertain(err), err
		}
	}
	status.Run, status.State = record.Run, record.State
	before := record.Topics
	if record.State == catalog.ImportCopying || record.State == catalog.ImportAborted {
		if err := m.conflicts(ctx, request.Inventory); err != nil {
			return status, false, err
		}
		if status.Replicas, err = m.plan(ctx, &record, request); err != nil {
			return status, false, err
		}
		record.State = catalog.ImportCopying
	}
	if request.DryRun || record.State == catalog.ImportOpening || record.State == catalog.ImportOpen {
		return status, false, nil
	}
	record.Run = max(record.Run, 1)
	status.Run, status.State = record.Run, record.State
	if _, err := m.write(ctx, source, record, revision); err != nil {
		return status, catalog.Uncertain(err), err
	}
	return status, false, m.dropLeft(ctx, before, record.Topics)
}

func overtaken(source string, run, now int64) error {
	return fmt.Errorf("%w: attempt %d to import %s is not the last one, %d", topic.ErrConflict, run, source, now)
}

// read returns the record of an import, and its revision: 0 for an import that was never
// begun.
func (m *Import) read(ctx context.Context, source string) (catalog.Import, uint64, error) {
	record := catalog.Import{Format: catalog.ImportFormat, State: catalog.ImportCopying}
	if source == "" || len(source) > 100 || strings.Contains(source, "/") {
		return record, 0, fmt.Errorf("%q is not the identity of a store", source)
	}
	item, err := catalog.Get(ctx, m.store.Meta(), catalog.ImportsPrefix+source)
	if err != nil || item.Revision == 0 {
		return record, 0, err
	}
	if err := json.Unmarshal(item.Value, &record); err != nil {
		return record, 0, fmt.Errorf("metadata %q: %w", item.Key, err)
	}
	if record.Format != catalog.ImportFormat {
		return record, 0, fmt.Errorf("metadata %q: format %d; this version reads %d", item.Key, record.Format, catalog.ImportFormat)
	}
	return record, item.Revision, nil
}

func (m *Import) write(ctx context.Context, source string, record catalog.Import, revision uint64) (uint64, error) {
	value, err := json.Marshal(record)
	if err != nil {
		return 0, err
	}
	return m.store.Meta().Put(ctx, catalog.ImportsPrefix+source, value, revision)
}

// of returns the import that an attempt continues, which must be in one of these states.
func (m *Import) of(ctx context.Context, source string, run int64, states ...catalog.ImportState) (catalog.Import, uint64, error) {
	record, revision, err := m.read(ctx, source)
	switch {
	case err != nil:
		return record, 0, err
	case revision == 0:
		return record, 0, fmt.Errorf("import of %s: %w", source, topic.ErrNotFound)
	case record.Run != run:
		return record, 0, overtaken(source, run, record.Run)
	case !slices.Contains(states, record.State):
		return record, 0, fmt.Errorf("%w: the import of %s is %s", topic.ErrConflict, source, record.State)
	}
	return record, revision, nil
}

// conflicts returns an ImportConflictError if the cluster has topics or groups of
// these names.
func (m *Import) conflicts(ctx context.Context, inventory Inventory) error {
	var found ImportConflictError
	for _, t := range inventory.Topics {
		if err := topic.CheckName(t.Name); err != nil {
			return err
		}
		item, err := catalog.Get(ctx, m.store.Meta(), catalog.TopicsPrefix+t.Name)
		if err != nil {
			return err
		}
		if item.Revision != 0 {
			found.Topics = append(found.Topics, t.Name)
		}
	}
	for _, groupName := range inventory.Groups {
		item, err := catalog.Get(ctx, m.store.Meta(), group.GroupKey(groupName))
		if err != nil {
			return err
		}
		offsets, err := m.store.Meta().List(ctx, group.OffsetsKey(groupName, ""))
		if err != nil {
			return err
		}
		if item.Revision != 0 || len(offsets) > 0 {
			found.Groups = append(found.Groups, groupName)
		}
	}
	if len(found.Topics)+len(found.Groups) == 0 {
		return nil
	}
	return &found
}

// plan sets the topics of a record from an inventory. Partitions that are planned keep
// their nodes.
func (m *Import) plan(ctx context.Context, record *catalog.Import, request ImportRequest) (replicas int, err error) {
	places, err := m.places(ctx)
	if err != nil {
		return 0, err
	}
	usable := len(slices.DeleteFunc(slices.Clone(places), func(p topic.Place) bool { return !p.Open }))
	if replicas = request.Replicas; replicas == 0 {
		replicas = min(3, usable)
	}
	if most := min(usable, topic.MaxReplicas); replicas < 1 || replicas > most {
		return 0, fmt.Errorf("%w: %d, on %d nodes that are alive: want 1 to %d", topic.ErrInvalidReplicas, replicas, usable, most)
	}
	kept := map[string]catalog.ImportTopic{}
	for _, topic := range record.Topics {
		kept[topic.ID] = topic
		for _, nodes := range topic.Replicas {
			places.Load(nodes, 1)
		}
	}
	record.Topics = nil
	for _, t := range request.Inventory.Topics {
		if _, err := topic.ParseID(t.ID); err != nil {
			return 0, err
		}
		planned := catalog.ImportTopic{Name: t.Name, ID: t.ID, Delays: t.Delays, Removals: t.Removals, Replicas: kept[t.ID].Replicas}
		planned.Replicas = planned.Replicas[:min(len(planned.Replicas), t.Partitions)]
		if more := t.Partitions - len(planned.Replicas); more > 0 {
			added, err := places.Assign(more, replicas)
			if err != nil {
				return 0, err
			}
			planned.Replicas = append(planned.Replicas, added...)
		}
		record.Topics = append(record.Topics, planned)
	}
	return replicas, nil
}

// places returns the nodes with their present load.
func (m *Import) places(ctx context.Context) (topic.Places, error) {
	alive := m.store.Cluster().Alive()
	items, err := m.store.Meta().List(ctx, catalog.NodesPrefix)
	if err != nil {
		return nil, err
	}
	var nodes []topic.Node
	for _, item := range items {
		n, err := catalog.ReadNode(item)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, topic.Node{ID: n.ID, Advertised: topic.Advertised{Rack: n.Rack}, Alive: slices.Contains(alive, n.ID), Draining: n.Draining})
	}
	topics, err := m.store.Meta().List(ctx, catalog.TopicsPrefix)
	if err != nil {
		return nil, err
	}
	var kept [][]int32
	for _, item := range topics {
		record, err := catalog.ReadTopic(item)
		if err != nil {
			return nil, err
		}
		for _, p := range record.Partitions {
			kept = append(kept, p.Replicas)
		}
	}
	return topic.NewPlaces(topic.WithAlive(nodes, alive), kept), nil
}

// addresses returns the client addresses of the cluster's nodes, and whether all can compact topics.
func (m *Import) addresses(ctx context.Context) (nodes []catalog.Address, compact bool, err error) {
	items, err := m.store.Meta().List(ctx, catalog.NodesPrefix)
	if err != nil {
		return nil, false, err
	}
	nodes, compact = []catalog.Address{}, true
	for _, item := range items {
		node, err := catalog.ReadNode(item)
		if err != nil {
			return nil, false, err
		}
		nodes = append(nodes, catalog.Address{ID: node.ID, Host: node.Host, Port: node.Port, Rack: node.Rack, Listeners: node.Listeners})
		compact = compact && node.Compacts
	}
	return nodes, compact, nil
}

// leadersMax bounds how long opening waits for the partitions' leaders; leadersPoll is
// how often it checks.
const (
	leadersMax  = 5 * time.Second
	leadersPoll = 10 * time.Millisecond
)

// awaitLeaders waits a while until all partitions of an import have leaders, so that
// arriving clients find them.
func (m *Import) awaitLeaders(ctx context.Context, record catalog.Import) {
	ctx, cancel := context.WithTimeout(ctx, leadersMax)
	defer cancel()
	led := func(name string) bool {
		item, err := m.store.Meta().Get(ctx, catalog.TopicsPrefix+name)
		if err != nil {
			return false
		}
		stored, err := catalog.ReadTopic(item)
		return err == nil && !slices.ContainsFunc(stored.Partitions, func(p catalog.Partition) bool { return p.Leader == 0 })
	}
	for _, topic := range record.Topics {
		for !led(topic.Name) && lifecycle.Sleep(ctx, nil, leadersPoll) {
		}
	}
}
