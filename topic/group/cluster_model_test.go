package group_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/testkit/rapidtest"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

// kinds of steps; frequent ones are listed more than once.
var clusterStepKinds = []string{
	"join", "join", "join", "join", "sync", "sync", "sync", "sync", "heartbeat", "heartbeat", "commit", "commit", "commit",
	"find", "find", "find", "wait", "wait", "wait", "old commit", "leave", "come back",
	"kill", "restart", "restart", "cut", "heal", "heal", "lag", "catch up", "catch up", "stop", "fail", "fail not",
	"gather", "gather", "depose", "depose",
}

// TestGroupsOfAClusterModel runs clients in any order, at the node that they believe to
// be the coordinator, while nodes die, stop, are cut off and come back. It checks these
// invariants:
//
//   - an acknowledged commit stays, until a later one is tried;
//   - the stored generation never falls, and members get only assignments that are
//     stored;
//   - all members that get an assignment of one generation get the one that a single
//     request of its leader gave;
//   - no member gets the same generation from two coordinators, unless it is a
//     stored one;
//   - a commit is accepted only from the generation of the node that accepts it;
//   - what the members bring is counted exactly, at each node;
//   - after any faults, the group becomes stable when all behave.
func TestGroupsOfAClusterModel(t *testing.T) {
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			Kind: rapid.SampledFrom(clusterStepKinds).Draw(t, "kind"), Who: rapid.IntRange(0, 2).Draw(t, "who"),
			Value: rapid.IntRange(0, 11).Draw(t, "value"),
		}
	}), 60, longer(120, 400))
	outer := t
	defer rapidtest.Checks(50, 100)()
	rapid.Check(t, func(t *rapid.T) {
		all := steps.Draw(t, "steps")
		var wrong error
		var log []string
		synctest.Test(outer, func(t *testing.T) {
			m := newClusterModel(t)
			wrong = m.run(all)
			log = m.log
		})
		if wrong != nil {
			t.Fatalf("%v\n%s", wrong, strings.Join(log, "\n"))
		}
	})
}

// clusterModel is a group on three nodes, its clients, and the facts known about it.
// Commits must have the results that groupModel has.
type clusterModel struct {
	*groupNodes
	groupModel
	down, cut map[int32]bool
	stored    *storedGenerations
	highest   int32                    // highest stored generation
	told      map[string]*group.Groups // by member and generation, the first that returned it
}

func newClusterModel(t *testing.T) *clusterModel {
	stored := &storedGenerations{all: map[int32]bool{}}
	m := &clusterModel{
		down: map[int32]bool{}, cut: map[int32]bool{}, stored: stored, told: map[string]*group.Groups{},
		groupModel: groupModel{t: t, assigned: map[string]string{}, committed: map[int32]int64{}, perhaps: map[int32][]int64{}},
	}
	m.groupNodes = newGroupNodesOn(t, 3, func(meta topic.Meta) topic.Meta { return notingMeta{meta, stored} })
	for i, instance := range []string{"", "static-1", "static-2"} {
		c := &modelClient{consumer: newConsumer(t, m.groupNodes.groups[1], fmt.Sprint(i), instance)}
		c.join.RequireMember = i == 0
		c.join.Session, c.join.Rebalance = time.Minute, time.Duration(5+5*i)*time.Second
		m.clients = append(m.clients, c)
		m.find(c)
	}
	return m
}

func (m *clusterModel) run(steps []step) error {
	if err := play(steps, &m.log, m.do, m.look); err != nil {
		return err
	}
	return m.end()
}

func (m *clusterModel) do(s step) error {
	c := m.clients[s.Who]
	switch s.Kind {
	case "join":
		if c.joining == nil && c.syncing == nil {
			c.joining = c.startJoin()
		}
	case "sync":
		if c.joining == nil && c.syncing == nil && c.Generation >= 0 {
			c.syncing = m.sync(c)
		}
	case "heartbeat":
		c.failed(c.heartbeat())
	case "commit":
		return m.commit(c, c.MemberIdentity, int32(s.Value%3))
	case "old commit":
		return m.commit(c, c.old, int32(s.Value%3))
	case "find":
		m.find(c)
	case "wait":
		time.Sleep(time.Duration(s.Value) * time.Second)
	case "leave":
		_, err := c.groups.Leave("g", []group.MemberIdentity{{Member: c.Member, Instance: c.Instance}})
		if err == nil {
			c.Member, c.Generation = "", -1
		}
	case "gather":
		return m.gather(c, 2*s.Value)
	case "depose":
		return m.depose()
	case "come back":
		c.Member, c.Generation, c.joining, c.syncing = "", -1, nil, nil
	default:
		m.disturb(s.Kind, int32(1+s.Who), s.Value)
	}
	return nil
}

// disturb applies a fault to a node.
func (m *clusterModel) disturb(what string, id int32, value int) {
	store := m.Store(id)
	switch {
	case what == "restart" && m.down[id]:
		m.restart(id)
		m.down[id], m.cut[id] = false, false
	case m.down[id]:
	case what == "kill":
		m.kill(id)
		m.down[id] = true
	case what == "stop":
		m.groupNodes.end(id)
		m.Kill(id)
		m.down[id] = true
	case what == "cut":
		m.Cut(id)
		m.cut[id] = true
	case what == "heal":
		m.Heal(id)
		m.cut[id] = false
	case what == "lag":
		store.Lag(true)
	case what == "catch up":
		store.Lag(false)
	case what == "fail":
		prefixes := []string{"groups/", "offsets/", "coordinators/"}
		store.FailPuts(prefixes[value%3], []error{topic.ErrUncertain, errors.New("disk on fire")}[value%2], value < 6)
	case what == "fail not":
		store.FailPuts("", nil, false)
	}
}

// gather lets all clients but one behave for a while.
func (m *clusterModel) gather(but *modelClient, rounds int) error {
	for range rounds {
		for _, c := range m.clients {
			if c != but {
				m.find(c)
				m.behave(c)
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if err := m.look(); err != nil {
			return err
		}
	}
	return nil
}

// depose takes the group from its coordinator without notifying it, and waits until
// other nodes have claimed it.
func (m *clusterModel) depose() error {
	ctx := m.groupModel.t.Context()
	for id := int32(1); id <= 3; id++ {
		meta := m.Store(id).Meta()
		node, err := m.groupNodes.groups[id].Coordinator(ctx, "g")
		if m.down[id] || m.cut[id] || err != nil || meta.Sync(ctx) != nil {
			continue
		}
		m.disturb("lag", node, 0)
		item, err := meta.Get(ctx, slotOfG)
		if err != nil {
			return err
		}
		var record map[string]any
		if err := json.Unmarshal(item.Value, &record); err != nil {
			return err
		}
		record["node"], record["left"] = 0, node
		value, err := json.Marshal(record)
		if err != nil {
			return err
		}
		_, err = meta.Put(ctx, slotOfG, value, item.Revision)
		time.Sleep(time.Second)
		if errors.Is(err, topic.ErrConflict) || errors.Is(err, topic.ErrUncertain) || fmt.Sprint(err) == "disk on fire" {
			return nil
		}
		return err
	}
	return nil
}

// slotOfG is the slot of group "g".
const slotOfG = "coordinators/6"

// find lets a client ask all nodes for the coordinator, unless it waits for an answer.
func (m *clusterModel) find(c *modelClient) {
	if c.joining != nil || c.syncing != nil {
		return
	}
	for id := int32(1); id <= 3; id++ {
		if node, err := m.groupNodes.groups[id].Coordinator(m.groupModel.t.Context(), "g"); err == nil && !m.down[id] {
			c.groups = m.groupNodes.groups[node]
			return
		}
	}
}

func (m *clusterModel) commit(c *modelClient, who group.MemberIdentity, partition int32) error {
	if who.Member == "" {
		who.Generation = -1
	}
	d, err := c.groups.Describe("g")
	m.last++
	commit := modelCommit{partition: partition, offset: m.last}
	known := err == nil || errors.Is(err, group.ErrNoGroup)
	present := who.Generation == d.Generation && d.State != group.CompletingRebalance ||
		who.Generation < 0 && d.State == group.Empty
	if generation, _, known := m.agreed(); known && who.Generation >= 0 && who.Generation < generation {
		commit.refuse = fmt.Errorf("%+v has committed, and generation %d is stored", who, generation)
	}
	if !known || !present {
		commit.refuse = fmt.Errorf("%+v has committed into generation %d, %v, %w", who, d.Generation, d.State, err)
	}
	who.Group = "g"
	commit.answer = c.groups.Commit(group.CommitRequest{MemberIdentity: who, Offsets: []group.OffsetCommit{
		{Topic: "orders", Partition: partition, Offset: m.last},
	}})
	m.commits = append(m.commits, commit)
	m.perhaps[partition] = append(m.perhaps[partition], m.last)
	return nil
}

// look collects the answers, and checks them.
func (m *clusterModel) look() error {
	record, offsets, known := m.agreed()
	if known && record < m.highest {
		return fmt.Errorf("generation %d is stored after %d", record, m.highest)
	}
	m.highest = max(m.highest, record)
	for _, c := range m.clients {
		if c.joining != nil && settled(c.joining) {
			if err := m.joined(c); err != nil {
				return err
			}
		}
		if c.syncing != nil && settled(c.syncing) {
			before := len(m.assigned)
			if err := m.synced(c); err != nil {
				return err
			}
			if known && len(m.assigned) > before && record < c.Generation {
				return fmt.Errorf("client %s is assigned something in generation %d, and %d is stored", c.join.Client, c.Generation, record)
			}
		}
	}
	for _, groups := range m.groupNodes.groups {
		if err := wantCounted(groups); err != nil {
			return err
		}
	}
	if err := m.lookAtCommits(); err != nil {
		return err
	}
	if !known {
		return nil
	}
	for partition, want := range m.committed {
		if got := offsets[partition]; got != want && !slices.Contains(m.perhaps[partition], got) {
			return fmt.Errorf("partition %d has the offset %d, want %d, or of %v", partition, got, want, m.perhaps[partition])
		}
	}
	return nil
}

// agreed returns the state that a majority has stored, if one can be asked: the group's
// generation, and its offsets.
func (m *clusterModel) agreed() (generation int32, offsets map[int32]int64, known bool) {
	for id := int32(1); id <= 3; id++ {
		meta, ctx := m.Store(id).Meta(), m.groupModel.t.Context()
		if m.down[id] || m.cut[id] || meta.Sync(ctx) != nil {
			continue
		}
		if item, err := meta.Get(ctx, "groups/g"); err == nil {
			generation = generationOf(item.Value)
		}
		offsets = map[int32]int64{}
		item, err := meta.Get(ctx, "offsets/g/orders")
		if err == nil {
			var record struct {
				Partitions map[int32]struct {
					Offset int64 `json:"offset"`
				} `json:"partitions"`
			}
			if err := json.Unmarshal(item.Value, &record); err != nil {
				m.groupModel.t.Fatal(err)
			}
			for partition, o := range record.Partitions {
				offsets[partition] = o.Offset
			}
		}
		return generation, offsets, true
	}
	return 0, nil, false
}

func (m *clusterModel) joined(c *modelClient) error {
	before := c.MemberIdentity
	err := c.finishJoin(c.joining)
	c.joining = nil
	if c.failed(err) {
		return nil
	}
	if before.Generation != c.Generation {
		c.old = before
	}
	told := fmt.Sprint(c.Member, "/", c.Generation)
	if first := m.told[told]; first != nil && first != c.groups {
		m.stored.mu.Lock()
		defer m.stored.mu.Unlock()
		if !m.stored.all[c.Generation] {
			return fmt.Errorf("client %s is told generation %d by two nodes, and it is not stored", c.join.Client, c.Generation)
		}
		return nil
	}
	m.told[told] = c.groups
	return nil
}

// end brings all nodes back, and lets all clients behave: all requests are answered, and
// the group becomes stable.
func (m *clusterModel) end() error {
	for id := int32(1); id <= 3; id++ {
		for _, what := range []string{"restart", "heal", "catch up", "fail not"} {
			m.disturb(what, id, 0)
		}
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	if err := m.look(); err != nil {
		return err
	}
	for _, c := range m.clients {
		if c.joining != nil && !settled(c.joining) || c.syncing != nil && !settled(c.syncing) {
			return fmt.Errorf("client %s waits for ever", c.join.Client)
		}
		c.joining, c.syncing, c.Member, c.Generation = nil, nil, "", -1
	}
	groups := m.move()
	for range 4 * 8 {
		for _, c := range m.clients {
			c.groups = groups
			m.behave(c)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if err := m.look(); err != nil {
			return err
		}
		if d, err := groups.Describe("g"); err == nil && d.State == group.Stable && len(d.Members) == len(m.clients) {
			return nil
		}
	}
	d, err := groups.Describe("g")
	return errors.Join(fmt.Errorf("rebalances do not end: %+v", d), err)
}
