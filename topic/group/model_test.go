package group_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

// kinds of steps; frequent ones are listed more than once.
var stepKinds = []string{
	"join", "join", "join", "join", "sync", "sync", "sync", "sync", "heartbeat", "heartbeat", "commit", "commit", "commit",
	"wait", "wait", "old commit", "leave", "lose answer", "restart", "fail", "come back",
	"hold", "release", "release",
}

// TestGroupModel runs clients in any order, while the store fails and the broker
// restarts. It checks these invariants:
//
//   - all members that get an assignment of one generation get the one that a single
//     request of its leader gave;
//   - generations only grow, unless the group is removed, or the broker
//     restarts: one that was not stored may be given again then;
//   - a commit is accepted from the present generation only, and an acknowledged
//     one stays, also across restarts;
//   - what the members bring is counted exactly;
//   - after any faults, the group becomes stable when all behave.
func TestGroupModel(t *testing.T) {
	steps := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) step {
		return step{
			Kind: rapid.SampledFrom(stepKinds).Draw(t, "kind"), Who: rapid.IntRange(0, 3).Draw(t, "who"),
			Value: rapid.IntRange(0, 11).Draw(t, "value"),
		}
	}), 40, longer(80, 300))
	outer := t
	rapid.Check(t, func(t *rapid.T) {
		all := steps.Draw(t, "steps")
		var wrong error
		var log []string
		synctest.Test(outer, func(t *testing.T) {
			m := newGroupModel(t)
			wrong = m.run(all)
			log = m.log
			m.close()
		})
		if wrong != nil {
			t.Fatalf("%v\n%s", wrong, strings.Join(log, "\n"))
		}
	})
}

func longer(short, long int) int {
	if os.Getenv("SLUICE_LONG") != "" {
		return long
	}
	return short
}

// modelClient is a client and its open requests.
type modelClient struct {
	*consumer
	joining *group.Awaited[group.JoinResult]
	syncing *group.Awaited[group.SyncResult]
	old     group.MemberIdentity // of its last generation but one
}

// groupModel is a group, its clients, and the facts known about it.
type groupModel struct {
	t       *testing.T
	meta    *badMeta
	groups  *group.Groups
	clients []*modelClient
	log     []string

	life       int               // counts the groups of that name
	generation int32             // the highest in this life, since the last restart
	assigned   map[string]string // by life and generation, the leader's request that counts
	requests   int
	// committed is the last acknowledged offset, by partition, and possibly later ones
	// that were not acknowledged.
	committed map[int32]int64
	perhaps   map[int32][]int64
	last      int64
	commits   []modelCommit // without an answer
	release   func()        // releases held writes
}

type modelCommit struct {
	answer    *group.Awaited[[]error]
	partition int32
	offset    int64
	refuse    error // why it must be refused
}

func newGroupModel(t *testing.T) *groupModel {
	m := &groupModel{
		t: t, meta: newBadMeta(), assigned: map[string]string{}, committed: map[int32]int64{}, perhaps: map[int32][]int64{},
		release: func() {},
	}
	m.start()
	for i, instance := range []string{"", "", "static-2", "static-3"} {
		c := &modelClient{consumer: newConsumer(t, m.groups, fmt.Sprint(i), instance)}
		c.join.RequireMember = i == 1
		c.join.Rebalance = time.Duration(10+10*i) * time.Second
		m.clients = append(m.clients, c)
	}
	return m
}

func (m *groupModel) start() {
	m.groups = group.New(m.meta, topic.Single{}, topic.GroupsConfig{}, nil, nil)
	if err := m.groups.Load(m.t.Context()); err != nil {
		m.t.Fatal(err)
	}
	for _, c := range m.clients {
		c.groups = m.groups
	}
}

func (m *groupModel) close() {
	m.release()
	stopGroups(m.t, m.groups)
}

func (m *groupModel) run(steps []step) error {
	if err := play(steps, &m.log, m.do, m.look); err != nil {
		return err
	}
	return m.end()
}

func (m *groupModel) do(s step) error {
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
		return m.commit(c.MemberIdentity, int32(s.Value%3))
	case "old commit":
		return m.commit(c.old, int32(s.Value%3))
	case "hold":
		m.release()
		m.release = m.meta.hold()
	case "release":
		m.release()
	case "wait":
		time.Sleep(time.Duration(s.Value) * time.Second)
	case "leave":
		if _, err := m.groups.Leave("g", []group.MemberIdentity{{Member: c.Member, Instance: c.Instance}}); err != nil {
			return err
		}
		c.Member, c.Generation = "", -1
	case "lose answer":
		c.joining, c.syncing = nil, nil
	case "come back":
		c.Member, c.Generation, c.joining, c.syncing = "", -1, nil, nil
	case "fail":
		fails := []error{topic.ErrUncertain, errors.New("disk on fire")}
		m.meta.failNext(1+s.Value%3, fails[s.Value%2], s.Value%4 < 2)
	case "restart":
		m.release()
		stopGroups(m.t, m.groups)
		m.start()
		m.generation = 0 // one that was not stored may be given again
	}
	return nil
}

// sync sends an assignment that identifies the request.
func (m *groupModel) sync(c *modelClient) *group.Awaited[group.SyncResult] {
	r := group.SyncRequest{MemberIdentity: c.MemberIdentity}
	if c.leader {
		m.requests++
		r.Assignments = map[string][]byte{}
		for _, member := range c.joined.Members {
			r.Assignments[member.Member] = fmt.Appendf(nil, "%d %s", m.requests, member.Member)
		}
	}
	return c.groups.Sync(r)
}

// failed makes a client react to an error that ends its membership, and reports whether
// there was an error at all.
func (c *modelClient) failed(err error) bool {
	if errors.Is(err, group.ErrUnknownMember) || errors.Is(err, group.ErrFencedInstance) {
		c.Member, c.Generation, c.leader = "", -1, false
	}
	return err != nil
}

func (m *groupModel) commit(who group.MemberIdentity, partition int32) error {
	if who.Member == "" {
		who.Generation = -1
	}
	d, err := m.groups.Describe("g")
	if err != nil && !errors.Is(err, group.ErrNoGroup) {
		return err
	}
	m.last++
	commit := modelCommit{partition: partition, offset: m.last}
	present := who.Generation == d.Generation && d.State != group.CompletingRebalance ||
		who.Generation < 0 && d.State == group.Empty
	if !present {
		commit.refuse = fmt.Errorf("%+v has committed into generation %d, %v", who, d.Generation, d.State)
	}
	commit.answer = m.groups.Commit(group.CommitRequest{MemberIdentity: who, Offsets: []group.OffsetCommit{
		{Topic: "orders", Partition: partition, Offset: m.last},
	}})
	m.commits = append(m.commits, commit)
	m.perhaps[partition] = append(m.perhaps[partition], m.last)
	return nil
}

// lookAtCommits collects the acknowledged commits. Commits are applied in order, so an
// acknowledged one replaces all before it.
func (m *groupModel) lookAtCommits() error {
	var waiting []modelCommit
	for _, c := range m.commits {
		if !settled(c.answer) {
			waiting = append(waiting, c)
			continue
		}
		errs, err := c.answer.Wait(m.t.Context())
		taken := err == nil && errs[0] == nil
		switch {
		case taken && c.refuse != nil:
			return c.refuse
		case taken:
			m.committed[c.partition] = c.offset
			m.perhaps[c.partition] = slices.DeleteFunc(m.perhaps[c.partition], func(o int64) bool { return o <= c.offset })
		case err != nil: // refused, and not tried
			m.perhaps[c.partition] = slices.DeleteFunc(m.perhaps[c.partition], func(o int64) bool { return o == c.offset })
		}
	}
	m.commits = waiting
	return nil
}

// look collects the answers, and checks them.
func (m *groupModel) look() error {
	if _, err := m.groups.Describe("g"); errors.Is(err, group.ErrNoGroup) {
		m.life++
		defer func() { m.generation = 0 }() // answers read now may be of the removed group
	}
	before := m.generation // later answers are not ordered
	for _, c := range m.clients {
		if c.joining != nil && settled(c.joining) {
			if err := m.joined(c, before); err != nil {
				return err
			}
		}
		if c.syncing != nil && settled(c.syncing) {
			if err := m.synced(c); err != nil {
				return err
			}
		}
	}
	if err := m.lookAtCommits(); err != nil {
		return err
	}
	return errors.Join(m.lookAtOffsets(), wantCounted(m.groups))
}

func (m *groupModel) joined(c *modelClient, least int32) error {
	before := c.MemberIdentity
	err := c.finishJoin(c.joining)
	c.joining = nil
	if c.failed(err) {
		return nil
	}
	if before.Generation != c.Generation {
		c.old = before
	}
	if c.Generation < least {
		return fmt.Errorf("client %s joined generation %d after %d", c.join.Client, c.Generation, least)
	}
	m.generation = max(m.generation, c.Generation)
	return nil
}

func (m *groupModel) synced(c *modelClient) error {
	result, err := c.syncing.Wait(m.t.Context())
	c.syncing = nil
	if c.failed(err) {
		return nil
	}
	request, _, _ := strings.Cut(string(result.Assignment), " ")
	generation := fmt.Sprint(m.life, "/", c.Generation)
	if known := m.assigned[generation]; known != "" && known != request {
		return fmt.Errorf("client %s has the assignment %q of generation %s, others that of request %s", c.join.Client, result.Assignment, generation, known)
	}
	m.assigned[generation] = request
	return nil
}

func (m *groupModel) lookAtOffsets() error {
	offsets, err := m.groups.Offsets("g")
	if err != nil {
		return err
	}
	for partition, want := range m.committed {
		got, there := offsets["orders"][partition]
		allowed := there && got.Offset == want
		for _, perhaps := range m.perhaps[partition] {
			allowed = allowed || there && got.Offset == perhaps
		}
		if !allowed {
			return fmt.Errorf("partition %d has the offset %d, want %d, or of %v", partition, got.Offset, want, m.perhaps[partition])
		}
	}
	return nil
}

// end lets all clients behave: all requests are answered, and the group becomes stable.
func (m *groupModel) end() error {
	m.meta.failNext(0, nil, false)
	m.release()
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	if err := m.look(); err != nil { // a removed group is a new one when it comes back
		return err
	}
	for _, c := range m.clients {
		if c.joining != nil && !settled(c.joining) || c.syncing != nil && !settled(c.syncing) {
			return fmt.Errorf("client %s waits for ever", c.join.Client)
		}
		c.joining, c.syncing, c.Member, c.Generation = nil, nil, "", -1
	}
	for range 4 * 8 {
		for _, c := range m.clients {
			m.behave(c)
		}
		time.Sleep(3 * time.Second)
		if err := m.look(); err != nil {
			return err
		}
		if d, err := m.groups.Describe("g"); err == nil && d.State == group.Stable && len(d.Members) == len(m.clients) {
			return nil
		}
	}
	d, err := m.groups.Describe("g")
	return errors.Join(fmt.Errorf("rebalances do not end: %+v", d), err)
}

// behave lets a client take its normal next step.
func (m *groupModel) behave(c *modelClient) {
	switch {
	case c.joining != nil || c.syncing != nil:
	case c.Generation < 0: // has no member id, or one that it is to join with
		c.joining = c.startJoin()
	default:
		err := c.heartbeat()
		c.failed(err)
		switch {
		case err == nil:
			c.syncing = m.sync(c)
		case c.Member != "":
			c.joining = c.startJoin()
		}
	}
}
