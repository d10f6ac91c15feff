package group_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/storetest"
)

// groupNodes is a cluster whose nodes have only groups.
type groupNodes struct {
	*storetest.Nodes
	t      *testing.T
	groups map[int32]*group.Groups
	metas  map[int32]*badMeta
	wrap   func(topic.Meta) topic.Meta // wraps the metadata for the groups of a node
}

// newGroupNodes returns a cluster of count nodes that have divided the slots of
// groups, with a topic "orders".
func newGroupNodes(t *testing.T, count int) *groupNodes {
	return newGroupNodesOn(t, count, func(meta topic.Meta) topic.Meta { return meta })
}

func newGroupNodesOn(t *testing.T, count int, wrap func(topic.Meta) topic.Meta) *groupNodes {
	n := &groupNodes{
		Nodes: storetest.NewCluster(count), t: t, groups: map[int32]*group.Groups{}, metas: map[int32]*badMeta{}, wrap: wrap,
	}
	n.makeTopic("orders", `"id":"00000000000000000000000000000001"`)
	for id := range int32(count) {
		n.register(id+1, false)
	}
	for id := range int32(count) {
		n.start(id + 1)
	}
	t.Cleanup(func() {
		for id := range n.groups {
			n.end(id)
		}
	})
	n.settle()
	return n
}

// put writes an item into the metadata in place of a node that does not exist.
func (n *groupNodes) put(key, value string) {
	n.t.Helper()
	for id := int32(1); n.Store(id) != nil; id++ {
		meta := n.Store(id).Meta()
		if meta.Sync(n.t.Context()) != nil {
			continue
		}
		item, err := meta.Get(n.t.Context(), key)
		if err != nil && !errors.Is(err, topic.ErrNotFound) {
			n.t.Fatal(err)
		}
		if _, err = meta.Put(n.t.Context(), key, []byte(value), item.Revision); err != nil {
			n.t.Fatal(err)
		}
		return
	}
	n.t.Fatal("no node can write")
}

func (n *groupNodes) register(id int32, draining bool) {
	n.put(fmt.Sprint("nodes/", id), fmt.Sprintf(`{"id":%d,"host":"node%d","port":9092,"draining":%v}`, id, id, draining))
}

func (n *groupNodes) makeTopic(name, fields string) {
	n.put("topics/"+name, `{"partitions":[],`+fields+`}`)
}

// start starts the groups of a node whose store exists.
func (n *groupNodes) start(id int32) {
	store := n.Store(id)
	n.metas[id] = &badMeta{Meta: n.wrap(store.Meta()), puts: map[string]int{}}
	n.groups[id] = group.New(n.metas[id], store.Cluster(), topic.GroupsConfig{}, nil, nil)
	if err := n.groups[id].Load(n.t.Context()); err != nil {
		n.t.Fatal(err)
	}
}

// end stops the groups of a node, whatever its store does.
func (n *groupNodes) end(id int32) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(n.t.Context()), time.Minute)
	defer cancel()
	if err := n.groups[id].Stop(ctx); err != nil {
		n.t.Errorf("stop node %d: %v", id, err)
	}
}

// kill kills a node as SIGKILL does.
func (n *groupNodes) kill(id int32) {
	n.Kill(id)
	n.end(id)
}

func (n *groupNodes) restart(id int32) {
	n.Restart(id)
	n.start(id)
}

// settle waits until slots have moved to their preferred owners.
func (n *groupNodes) settle() {
	time.Sleep(20 * time.Second)
	synctest.Wait()
}

// coordinators returns the nodes that answer for group "g" as its coordinator.
func (n *groupNodes) coordinators() (serving []int32) {
	synctest.Wait()
	for id := int32(1); n.Store(id) != nil; id++ {
		if _, err := n.groups[id].Offsets("g"); err == nil {
			serving = append(serving, id)
		}
	}
	return serving
}

// coordinator returns the one node that coordinates group "g", which the others know.
func (n *groupNodes) coordinator() int32 {
	n.t.Helper()
	serving := n.coordinators()
	if len(serving) != 1 {
		n.t.Fatalf("nodes %v coordinate the group", serving)
	}
	return serving[0]
}

// move makes consumers continue with the present coordinator.
func (n *groupNodes) move(consumers ...*consumer) *group.Groups {
	n.t.Helper()
	groups := n.groups[n.coordinator()]
	for _, c := range consumers {
		c.groups = groups
	}
	return groups
}

// storedGenerations records the generations of group "g" that were written.
type storedGenerations struct {
	mu  sync.Mutex
	all map[int32]bool
}

// notingMeta is a Meta that records them.
type notingMeta struct {
	topic.Meta
	stored *storedGenerations
}

func (m notingMeta) Put(ctx context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (uint64, error) {
	if key == "groups/g" {
		m.stored.mu.Lock()
		m.stored.all[generationOf(value)] = true
		m.stored.mu.Unlock()
	}
	return m.Meta.Put(ctx, key, value, revision, guards...)
}

func generationOf(value []byte) int32 {
	var record struct {
		Generation int32 `json:"generation"`
	}
	_ = json.Unmarshal(value, &record)
	return record.Generation
}
