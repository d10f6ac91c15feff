package group_test

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/storetest"
)

// badMeta is a Meta with the topics orders and refunds, in which writes of groups fail on demand.
type badMeta struct {
	topic.Meta
	mu      sync.Mutex
	fail    error // error of Put and Delete
	applied bool  // they take effect nevertheless
	times   int   // how often; negative: always
	held    chan struct{}
	puts    map[string]int
}

func newBadMeta() *badMeta {
	m := &badMeta{Meta: storetest.NewMemory().Meta(), puts: map[string]int{}}
	for _, name := range []string{"orders", "refunds"} {
		record := fmt.Sprintf(`{"id":%q,"partitions":[]}`, topic.NewID())
		if _, err := m.Meta.Put(context.Background(), "topics/"+name, []byte(record), 0); err != nil {
			panic(err) // a store in memory does not fail
		}
	}
	return m
}

// failNext makes the next writes fail.
func (m *badMeta) failNext(times int, err error, applied bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.times, m.fail, m.applied = times, err, applied
}

// hold makes writes wait until release.
func (m *badMeta) hold() (release func()) {
	m.mu.Lock()
	defer m.mu.Unlock()
	held := make(chan struct{})
	m.held = held
	return sync.OnceFunc(func() {
		m.mu.Lock()
		defer m.mu.Unlock()
		m.held = nil
		close(held)
	})
}

func (m *badMeta) write(ctx context.Context, key string, do func() error) error {
	if strings.HasPrefix(key, group.SlotPrefix) {
		return do()
	}
	m.mu.Lock()
	held := m.held
	m.puts[key]++
	fail, applied := m.fail, m.applied
	if m.times == 0 {
		fail = nil
	} else {
		m.times--
	}
	m.mu.Unlock()
	if held != nil {
		select {
		case <-held:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	if fail == nil || applied {
		if err := do(); err != nil {
			return err
		}
	}
	return fail
}

func (m *badMeta) Put(ctx context.Context, key string, value []byte, revision uint64, guards ...topic.Guard) (written uint64, err error) {
	err = m.write(ctx, key, func() error {
		written, err = m.Meta.Put(ctx, key, value, revision, guards...)
		return err
	})
	return written, err
}

func (m *badMeta) Delete(ctx context.Context, key string, revision uint64, guards ...topic.Guard) error {
	return m.write(ctx, key, func() error { return m.Meta.Delete(ctx, key, revision, guards...) })
}

func (m *badMeta) putsOf(key string) int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.puts[key]
}

// keys returns the keys of groups and of their offsets.
func (m *badMeta) keys(t *testing.T) []string {
	t.Helper()
	var keys []string
	for _, prefix := range []string{group.GroupPrefix, group.OffsetsPrefix} {
		items, err := m.List(t.Context(), prefix)
		if err != nil {
			t.Fatal(err)
		}
		for _, item := range items {
			keys = append(keys, item.Key)
		}
	}
	return keys
}

// startGroups returns groups that are stopped at the end of the test.
func startGroups(t *testing.T, meta topic.Meta, config topic.GroupsConfig) *group.Groups {
	t.Helper()
	groups := group.New(meta, topic.Single{}, config, nil, nil)
	if err := groups.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { stopGroups(t, groups) })
	return groups
}

func stopGroups(t *testing.T, groups *group.Groups) {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(t.Context()), time.Minute)
	defer cancel()
	if err := groups.Stop(ctx); err != nil {
		t.Errorf("stop: %v", err)
	}
}

// consumer is a client of one group, controlled by the test.
type consumer struct {
	t      *testing.T
	groups *group.Groups
	group.MemberIdentity
	join   group.JoinRequest
	leader bool
	joined group.JoinResult
}

// newConsumer returns a future member of group "g"; static if it has an instance id.
func newConsumer(t *testing.T, groups *group.Groups, name, instance string) *consumer {
	return &consumer{
		t: t, groups: groups, MemberIdentity: group.MemberIdentity{Group: "g", Instance: instance, Generation: -1},
		join: group.JoinRequest{
			Group: "g", Instance: instance, Client: name, Host: "/here", Session: 10 * time.Second, Rebalance: 30 * time.Second,
			ProtocolType: "consumer", Protocols: []group.Protocol{{Name: "range", Metadata: subscribes("orders")}},
		},
	}
}

// subscribes returns the metadata of a consumer of topics.
func subscribes(topics ...string) []byte {
	metadata := kmsg.NewConsumerMemberMetadata()
	metadata.Topics = topics
	return metadata.AppendTo(nil)
}

// startJoin joins, and does not wait.
func (c *consumer) startJoin() *group.Awaited[group.JoinResult] {
	c.join.Member = c.Member
	return c.groups.Join(c.join)
}

// finishJoin applies the result of a join.
func (c *consumer) finishJoin(joining *group.Awaited[group.JoinResult]) error {
	result, err := joining.Wait(c.t.Context())
	if err != nil {
		if errors.Is(err, group.ErrMemberIDRequired) {
			c.Member = result.Member
		}
		return err
	}
	c.Member, c.Generation, c.leader, c.joined = result.Member, result.Generation, result.Leader == result.Member, result
	return nil
}

func (c *consumer) startSync() *group.Awaited[group.SyncResult] {
	request := group.SyncRequest{MemberIdentity: c.MemberIdentity}
	if c.leader {
		request.Assignments = map[string][]byte{}
		for _, m := range c.joined.Members {
			request.Assignments[m.Member] = assignment(c.Generation, m.Member)
		}
	}
	return c.groups.Sync(request)
}

func assignment(generation int32, member string) []byte {
	return fmt.Appendf(nil, "%d for %s", generation, member)
}

func (c *consumer) heartbeat() error { return c.groups.Heartbeat(c.MemberIdentity) }

func (c *consumer) commit(partition int32, offset int64) error {
	errs, err := c.groups.Commit(group.CommitRequest{
		MemberIdentity: c.MemberIdentity,
		Offsets:        []group.OffsetCommit{{Topic: "orders", Partition: partition, Offset: offset, Epoch: 1}},
	}).Wait(c.t.Context())
	return errors.Join(err, errors.Join(errs...))
}

// gather lets consumers join and sync together, until the group is stable.
func gather(t *testing.T, consumers ...*consumer) {
	t.Helper()
	joins := map[*consumer]*group.Awaited[group.JoinResult]{}
	for _, c := range consumers {
		joins[c] = c.startJoin()
	}
	synctest.Wait()
	var syncs []*group.Awaited[group.SyncResult]
	for _, c := range consumers {
		if err := c.finishJoin(joins[c]); err != nil {
			t.Fatalf("%s joins: %v", c.join.Client, err)
		}
	}
	for _, c := range consumers {
		syncs = append(syncs, c.startSync())
	}
	for i, c := range consumers {
		result, err := syncs[i].Wait(t.Context())
		if err != nil {
			t.Fatalf("%s syncs: %v", c.join.Client, err)
		}
		if want := string(assignment(c.Generation, c.Member)); string(result.Assignment) != want {
			t.Fatalf("%s is assigned %q, want %q", c.join.Client, result.Assignment, want)
		}
	}
}

// wantState checks the state of group g and the number of its members.
func wantState(t *testing.T, groups *group.Groups, state group.State, members int) {
	t.Helper()
	d, err := groups.Describe("g")
	if err != nil {
		t.Fatal(err)
	}
	if d.State != state || len(d.Members) != members {
		t.Fatalf("the group is %v with %d members, want %v with %d", d.State, len(d.Members), state, members)
	}
}

func wantErr(t *testing.T, what string, err, want error) {
	t.Helper()
	if !errors.Is(err, want) {
		t.Fatalf("%s: %v, want %v", what, err, want)
	}
}

// wantOffsets checks the committed offsets of group g in topic orders.
func wantOffsets(t *testing.T, groups *group.Groups, want map[int32]int64) {
	t.Helper()
	offsets, err := groups.Offsets("g")
	if err != nil {
		t.Fatal(err)
	}
	got := map[int32]int64{}
	for partition, o := range offsets["orders"] {
		got[partition] = o.Offset
	}
	if !maps.Equal(got, want) {
		t.Fatalf("committed %v, want %v", got, want)
	}
}

// settled waits, and reports whether the answer came.
func settled[T any](a *group.Awaited[T]) bool {
	synctest.Wait()
	select {
	case <-a.Done():
		return true
	default:
		return false
	}
}
