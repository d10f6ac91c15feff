package kafka

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
)

// killNode kills a node: others do not see any further change of it.
func (s *several) killNode(id int32) {
	s.nodes.Kill(id)
	ended, cancel := context.WithCancel(context.Background())
	cancel()
	_ = s.servers[id].Stop(ended)
}

// coordinator waits until one node coordinates a group, and all asked nodes name it.
func (s *several) coordinator(group string, asked ...int32) int32 {
	s.Helper()
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorKey, find.CoordinatorKeys = group, []string{group}
	for began := time.Now(); time.Since(began) < patience; {
		found := map[int32]int{}
		for i, id := range asked {
			answer := ask[*kmsg.FindCoordinatorResponse](dial(s, s.servers[id]), int16(3+i%2), find)
			node, host, port, code := answer.NodeID, answer.Host, answer.Port, answer.ErrorCode
			if len(answer.Coordinators) > 0 {
				c := answer.Coordinators[0]
				node, host, port, code = c.NodeID, c.Host, c.Port, c.ErrorCode
			}
			if code != 0 {
				wantCode(s, "find coordinator", code, kerr.CoordinatorNotAvailable)
				continue
			}
			if at := net.JoinHostPort(host, strconv.Itoa(int(port))); at != s.servers[node].Addr() {
				s.Fatalf("node %d is said to be at %s, and is at %s", node, at, s.servers[node].Addr())
			}
			found[node]++
		}
		for node, times := range found {
			if _, err := s.servers[node].broker.Groups().Offsets(group); err == nil && times == len(asked) {
				return node
			}
		}
		<-time.After(20 * time.Millisecond)
	}
	s.Fatalf("nobody coordinates %q", group)
	return 0
}

// Every node names the coordinator of a group, and all others refuse requests of the group.
func TestGroupRequestsAtTheWrongNode(t *testing.T) {
	n := serveSeveral(t, 3, topic.Config{})
	right := n.coordinator("g", 1, 2, 3)
	p := dial(t, n.servers[right%3+1])
	joined := ask[*kmsg.JoinGroupResponse](p, 5, newJoin("g", ""))
	wantCode(t, "join", joined.ErrorCode, kerr.NotCoordinator)

	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.MemberID = "g", "a"
	wantCode(t, "heartbeat", ask[*kmsg.HeartbeatResponse](p, 4, beat).ErrorCode, kerr.NotCoordinator)

	sync := kmsg.NewPtrSyncGroupRequest()
	sync.Group, sync.MemberID = "g", "a"
	wantCode(t, "sync", ask[*kmsg.SyncGroupResponse](p, 3, sync).ErrorCode, kerr.NotCoordinator)

	leave := kmsg.NewPtrLeaveGroupRequest()
	leave.Group, leave.MemberID = "g", "a"
	wantCode(t, "leave", ask[*kmsg.LeaveGroupResponse](p, 2, leave).ErrorCode, kerr.NotCoordinator)

	if _, err := n.servers[right].broker.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 1}, false); err != nil {
		t.Fatal(err)
	}
	commit := commitOf("g", noMember, "orders", 0, 7)
	committed := ask[*kmsg.OffsetCommitResponse](dial(t, n.servers[right]), 8, commit)
	wantCode(t, "commit at the coordinator", committed.Topics[0].Partitions[0].ErrorCode, nil)
	for began := time.Now(); ; {
		committed = ask[*kmsg.OffsetCommitResponse](p, 8, commit)
		if committed.Topics[0].Partitions[0].ErrorCode != kerr.UnknownTopicOrPartition.Code || time.Since(began) > patience {
			break // this node knows the topic
		}
	}
	wantCode(t, "commit", committed.Topics[0].Partitions[0].ErrorCode, kerr.NotCoordinator)

	fetch := kmsg.NewPtrOffsetFetchRequest()
	group := kmsg.NewOffsetFetchRequestGroup()
	group.Group = "g"
	fetch.Groups = append(fetch.Groups, group)
	wantCode(t, "fetch offsets", ask[*kmsg.OffsetFetchResponse](p, 8, fetch).Groups[0].ErrorCode, kerr.NotCoordinator)
	fetched := ask[*kmsg.OffsetFetchResponse](dial(t, n.servers[right]), 8, fetch).Groups[0]
	if fetched.ErrorCode != 0 || len(fetched.Topics) != 1 || fetched.Topics[0].Partitions[0].Offset != 7 {
		t.Errorf("fetched %+v", fetched)
	}

	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"g"}
	wantCode(t, "describe", ask[*kmsg.DescribeGroupsResponse](p, 5, describe).Groups[0].ErrorCode, kerr.NotCoordinator)

	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{"g"}
	wantCode(t, "delete", ask[*kmsg.DeleteGroupsResponse](p, 2, remove).Groups[0].ErrorCode, kerr.NotCoordinator)

	if listed := ask[*kmsg.ListGroupsResponse](p, 4, kmsg.NewPtrListGroupsRequest()); len(listed.Groups) > 0 {
		t.Errorf("a node that does not coordinate it lists %+v", listed.Groups)
	}
}

// A consumer resumes when its coordinator stops, and when the next one is killed; tools list its
// group once.
func TestConsumerOutlivesCoordinators(t *testing.T) {
	for name, kind := range map[string]kgo.Opt{
		"classic": kgo.Balancers(kgo.CooperativeStickyBalancer()), "by the server": kgo.ServerSideBalancer(),
	} {
		t.Run(name, func(t *testing.T) { outliveCoordinators(t, kind) })
	}
}

func outliveCoordinators(t *testing.T, kind kgo.Opt) {
	config := topic.Config{Groups: topic.GroupsConfig{ConsumerHeartbeat: 100 * time.Millisecond}}
	n := serveSeveral(t, 3, config)
	if _, err := n.servers[1].broker.Create(t.Context(), topic.Spec{Name: "orders", Partitions: 3, Replicas: 3}, false); err != nil {
		t.Fatal(err)
	}
	producer := n.client(kgo.DefaultProduceTopic("orders"), kgo.DisableIdempotentWrite())
	consumer := n.client(
		kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(),
		kgo.SessionTimeout(10*time.Second), kgo.HeartbeatInterval(100*time.Millisecond), kgo.FetchMaxWait(100*time.Millisecond), kind,
	)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	read := map[string]int{}
	round := func(name string) {
		t.Helper()
		for i := range 30 {
			value := fmt.Sprint(name, i)
			if err := producer.ProduceSync(ctx, kgo.StringRecord(value)).FirstErr(); err != nil {
				t.Fatal(err)
			}
			read[value] = 0
		}
		for missing := 30; missing > 0; {
			fetched := consumer.PollFetches(ctx)
			if ctx.Err() != nil {
				t.Fatalf("%s: %d records are missing", name, missing)
			}
			fetched.EachRecord(func(r *kgo.Record) {
				if read[string(r.Value)]++; read[string(r.Value)] == 1 {
					missing--
				}
			})
			if err := consumer.CommitUncommittedOffsets(ctx); err != nil {
				t.Logf("%s: commit: %v", name, err)
			}
		}
		until.Succeeds(t, name+"commit", func() error { return consumer.CommitUncommittedOffsets(ctx) })
	}
	round("before ")
	first := n.coordinator("g", 1, 2, 3)
	stop(t, n.servers[first].broker.Leave)
	if n.coordinator("g", 1, 2, 3) == first { // the leaving node is asked too
		t.Fatalf("node %d has left, and coordinates", first)
	}
	n.killNode(first)
	round("after one has left ")
	n.serve(n.nodes.Restart(first), config)
	killed := n.coordinator("g", 1, 2, 3)
	n.killNode(killed)
	round("after one was killed ")

	admin := kadm.NewClient(client(t, n.servers[killed%3+1])) // a new client: the ports have changed
	n.await("tools see that all was read", func() bool {      // once the group has a coordinator
		committed, err := admin.FetchOffsets(ctx, "g")
		ends, endErr := admin.ListEndOffsets(ctx, "orders")
		lag := kadm.CalculateGroupLag(kadm.DescribedGroup{}, committed, ends)
		return err == nil && endErr == nil && len(lag) > 0 && lag.Total() == 0
	})
}
