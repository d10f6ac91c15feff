package topic

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
)

// Import takes what another store exports into the store of a cluster. Until the end
// nothing of it is in the catalog, so that nobody sees half a topic: [Import.Begin],
// then [Import.Log] and [Import.Append] for each log and [Import.Put] for the snapshots
// of producers, as often as there is something new. After [Import.Commit], for which the
// other store must be fenced, there is no way back: [Import.Put] for the groups, then
// [Import.Open]. All of it may be done again after a crash.
type Import struct {
	store Store

	mu   sync.Mutex
	logs map[string]*importing // by name
}

// NewImport returns the import into a store.
func NewImport(store Store) *Import { return &Import{store: store, logs: map[string]*importing{}} }

// LogMaker is a store that can make logs which do not begin at the beginning.
type LogMaker interface {
	// MakeLog is Store.OpenLog, but for a log that does not exist: its first entry
	// will have the sequence first, as if those before it had been trimmed.
	MakeLog(ctx context.Context, name string, nodes []int32, first uint64) (Log, error)
}

// ErrImported says that the topics of a store are in the cluster: it is too late to
// give up.
var ErrImported = errors.New("the topics are in the cluster already")

// ImportConflictError says what the cluster has already of what is to be imported.
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

// abridged lists names, and how many there are where it would be long.
func abridged(names []string) string {
	const most = 10
	if len(names) <= most {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
}

// ImportState says how far an import is.
type ImportState string

// The states of an import.
const (
	// ImportCopying: logs are being copied; it may be given up.
	ImportCopying ImportState = "copying"
	// ImportOpening: all logs are there; the rest follows, and nothing but that.
	ImportOpening ImportState = "opening"
	// ImportOpen: the cluster serves the topics.
	ImportOpen ImportState = "open"
	// ImportAborted: it was given up. What is there of it may be removed.
	ImportAborted ImportState = "aborted"
)

const (
	importsPrefix = "imports/"
	importFormat  = 1
)

// importRecord is what is stored of an import, by the identity of the store that it
// comes from.
type importRecord struct {
	Format int         `json:"format"`
	State  ImportState `json:"state"`
	// Run counts the attempts: only the last one may go on.
	Run    int64         `json:"run"`
	Topics []importTopic `json:"topics,omitempty"`
}

// importTopic is a topic that is imported.
type importTopic struct {
	Name     string    `json:"name"`
	ID       string    `json:"id"`
	Delays   bool      `json:"delays,omitempty"`
	Replicas [][]int32 `json:"replicas,omitempty"` // of each partition
	// Removals is how often a partition of a number was removed before.
	Removals map[int]int `json:"removals,omitempty"`
	// Epochs are the leader epochs at the ends of the partitions' logs, once these
	// are all there.
	Epochs []int32 `json:"epochs,omitempty"`
}

func (t importTopic) names(number int) partitionNames {
	id, _ := parseID(t.ID) // it was checked when it was planned
	return namesOf(id, int32(number), t.Removals[number])
}

// nodes returns which nodes keep a log; ok is false if it is not one of the topic's.
func (t importTopic) nodes(log string) (nodes []int32, ok bool) {
	for number, nodes := range t.Replicas {
		if names := t.names(number); log == names.records || t.Delays && log == names.delays {
			return nodes, true
		}
	}
	return nil, false
}

// logs are the topic's.
func (t importTopic) logs() (all []string) {
	for number := range t.Replicas {
		names := t.names(number)
		all = append(all, names.records)
		if t.Delays {
			all = append(all, names.delays)
		}
	}
	return all
}

// ImportRequest asks for an import.
type ImportRequest struct {
	// Inventory is what is to be imported, as it is now: it may be asked for again
	// when that has changed.
	Inventory Inventory `json:"inventory"`
	// Replicas is how many nodes are to keep each partition; 0: three, or all
	// nodes if there are fewer.
	Replicas int `json:"replicas"`
	// Run is the attempt that asks again; 0 begins a new one, and ends those before.
	Run int64 `json:"run"`
	// DryRun only checks.
	DryRun bool `json:"dry_run"`
}

// ImportStatus is how far an import is.
type ImportStatus struct {
	// Cluster is the identity of the store that it goes into.
	Cluster string      `json:"cluster"`
	Run     int64       `json:"run"`
	State   ImportState `json:"state"`
	// Replicas is how many nodes will keep each partition.
	Replicas int `json:"replicas"`
	// Nodes are where clients will find the topics.
	Nodes []Address `json:"nodes"`
}

// Begin begins an import, or goes on with it. Errors: *ImportConflictError,
// ErrInvalidReplicas; ErrConflict if the attempt is not the last one.
func (m *Import) Begin(ctx context.Context, request ImportRequest) (ImportStatus, error) {
	if err := m.store.Meta().Sync(ctx); err != nil {
		return ImportStatus{}, err
	}
	for range storeAttempts {
		status, again, err := m.begin(ctx, request)
		if !again {
			return status, err
		}
	}
	return ImportStatus{}, fmt.Errorf("import of %s: %w, %d times", request.Inventory.Cluster, ErrConflict, storeAttempts)
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
	status.Nodes, err = m.addresses(ctx)
	if err == nil {
		status.Cluster, err = loadClusterID(ctx, m.store.Meta())
	}
	if err != nil {
		return status, false, err
	}
	if request.Run == 0 && revision != 0 && !request.DryRun {
		// Whatever comes of it, those before can do nothing more.
		record.Run++
		request.Run = record.Run
		if revision, err = m.write(ctx, source, record, revision); err != nil {
			return status, uncertain(err), err
		}
	}
	status.Run, status.State = record.Run, record.State
	before := record.Topics
	if record.State == ImportCopying || record.State == ImportAborted {
		if err := m.conflicts(ctx, request.Inventory); err != nil {
			return status, false, err
		}
		if status.Replicas, err = m.plan(ctx, &record, request); err != nil {
			return status, false, err
		}
		record.State = ImportCopying
	}
	if request.DryRun || record.State == ImportOpening || record.State == ImportOpen {
		return status, false, nil
	}
	record.Run = max(record.Run, 1)
	status.Run, status.State = record.Run, record.State
	if _, err := m.write(ctx, source, record, revision); err != nil {
		return status, uncertain(err), err
	}
	return status, false, m.dropLeft(ctx, before, record.Topics)
}

func overtaken(source string, run, now int64) error {
	return fmt.Errorf("%w: attempt %d to import %s is not the last one, %d", ErrConflict, run, source, now)
}

// read returns what is stored of an import, and its revision: 0 for one that was
// never begun.
func (m *Import) read(ctx context.Context, source string) (importRecord, uint64, error) {
	record := importRecord{Format: importFormat, State: ImportCopying}
	if source == "" || len(source) > 100 || strings.Contains(source, "/") {
		return record, 0, fmt.Errorf("%q is not the identity of a store", source)
	}
	item, err := getItem(ctx, m.store.Meta(), importsPrefix+source)
	if err != nil || item.Revision == 0 {
		return record, 0, err
	}
	if err := json.Unmarshal(item.Value, &record); err != nil {
		return record, 0, fmt.Errorf("metadata %q: %w", item.Key, err)
	}
	if record.Format != importFormat {
		return record, 0, fmt.Errorf("metadata %q: format %d; this version reads %d", item.Key, record.Format, importFormat)
	}
	return record, item.Revision, nil
}

func (m *Import) write(ctx context.Context, source string, record importRecord, revision uint64) (uint64, error) {
	value, err := json.Marshal(record)
	if err != nil {
		return 0, err
	}
	return m.store.Meta().Put(ctx, importsPrefix+source, value, revision)
}

// of returns an import that an attempt goes on with, in one of these states.
func (m *Import) of(ctx context.Context, source string, run int64, states ...ImportState) (importRecord, uint64, error) {
	record, revision, err := m.read(ctx, source)
	switch {
	case err != nil:
		return record, 0, err
	case revision == 0:
		return record, 0, fmt.Errorf("import of %s: %w", source, ErrNotFound)
	case record.Run != run:
		return record, 0, overtaken(source, run, record.Run)
	case !slices.Contains(states, record.State):
		return record, 0, fmt.Errorf("%w: the import of %s is %s", ErrConflict, source, record.State)
	}
	return record, revision, nil
}

// conflicts returns an ImportConflictError if the cluster has topics or groups of
// these names.
func (m *Import) conflicts(ctx context.Context, inventory Inventory) error {
	var found ImportConflictError
	for _, topic := range inventory.Topics {
		if err := checkName(topic.Name); err != nil {
			return err
		}
		item, err := getItem(ctx, m.store.Meta(), topicsPrefix+topic.Name)
		if err != nil {
			return err
		}
		if item.Revision != 0 {
			found.Topics = append(found.Topics, topic.Name)
		}
	}
	for _, group := range inventory.Groups {
		item, err := getItem(ctx, m.store.Meta(), groupKey(group))
		if err != nil {
			return err
		}
		offsets, err := m.store.Meta().List(ctx, offsetsKey(group, ""))
		if err != nil {
			return err
		}
		if item.Revision != 0 || len(offsets) > 0 {
			found.Groups = append(found.Groups, group)
		}
	}
	if len(found.Topics)+len(found.Groups) == 0 {
		return nil
	}
	return &found
}

// plan makes the topics of a record those of an inventory. Who keeps a partition
// stays as it is.
func (m *Import) plan(ctx context.Context, record *importRecord, request ImportRequest) (replicas int, err error) {
	places, err := m.places(ctx)
	if err != nil {
		return 0, err
	}
	usable := len(slices.DeleteFunc(slices.Clone(places), func(p place) bool { return !p.open }))
	if replicas = request.Replicas; replicas == 0 {
		replicas = min(3, usable)
	}
	if most := min(usable, maxReplicas); replicas < 1 || replicas > most {
		return 0, fmt.Errorf("%w: %d, on %d nodes that are alive: want 1 to %d", ErrInvalidReplicas, replicas, usable, most)
	}
	kept := map[string]importTopic{}
	for _, topic := range record.Topics {
		kept[topic.ID] = topic
		for _, nodes := range topic.Replicas {
			places.load(nodes, 1)
		}
	}
	record.Topics = nil
	for _, topic := range request.Inventory.Topics {
		if _, err := parseID(topic.ID); err != nil {
			return 0, err
		}
		planned := importTopic{Name: topic.Name, ID: topic.ID, Delays: topic.Delays, Removals: topic.Removals, Replicas: kept[topic.ID].Replicas}
		planned.Replicas = planned.Replicas[:min(len(planned.Replicas), topic.Partitions)]
		if more := topic.Partitions - len(planned.Replicas); more > 0 {
			added, err := places.assign(more, replicas)
			if err != nil {
				return 0, err
			}
			planned.Replicas = append(planned.Replicas, added...)
		}
		record.Topics = append(record.Topics, planned)
	}
	return replicas, nil
}

// places returns the nodes with what they keep already.
func (m *Import) places(ctx context.Context) (places, error) {
	cluster := m.store.Cluster()
	if cluster == nil {
		return places{{open: true}}, nil
	}
	items, err := m.store.Meta().List(ctx, nodesPrefix)
	if err != nil {
		return nil, err
	}
	var nodes []Node
	for _, item := range items {
		n, err := readNodeRecord(item)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, Node{ID: n.ID, Advertised: Advertised{Rack: n.Rack}, Alive: slices.Contains(cluster.Alive(), n.ID), Draining: n.Draining})
	}
	topics, err := m.store.Meta().List(ctx, topicsPrefix)
	if err != nil {
		return nil, err
	}
	var kept [][]int32
	for _, item := range topics {
		record, err := readTopicRecord(item)
		if err != nil {
			return nil, err
		}
		for _, p := range record.Partitions {
			kept = append(kept, p.Replicas)
		}
	}
	return newPlaces(nodes, kept), nil
}

// addresses returns where the clients of the cluster's nodes connect to.
func (m *Import) addresses(ctx context.Context) ([]Address, error) {
	items, err := m.store.Meta().List(ctx, nodesPrefix)
	if err != nil {
		return nil, err
	}
	nodes := []Address{}
	for _, item := range items {
		node, err := readNodeRecord(item)
		if err != nil {
			return nil, err
		}
		nodes = append(nodes, Address{ID: node.ID, Host: node.Host, Port: node.Port, Rack: node.Rack})
	}
	return nodes, nil
}
