package kafka

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/group"
)

// newJoin returns a consumer's request to join.
func newJoin(group, member string) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Group, r.MemberID, r.SessionTimeoutMillis, r.RebalanceTimeoutMillis, r.ProtocolType = group, member, 120_000, 120_000, "consumer"
	protocol := kmsg.NewJoinGroupRequestProtocol()
	protocol.Name, protocol.Metadata = "range", []byte("metadata")
	r.Protocols = append(r.Protocols, protocol)
	return r
}

// joinAlone joins a group that has no other members.
func joinAlone(p *peer, version int16, group string) *kmsg.JoinGroupResponse {
	p.t.Helper()
	joined := ask[*kmsg.JoinGroupResponse](p, version, newJoin(group, ""))
	if version >= 4 {
		wantCode(p.t, "first join", joined.ErrorCode, kerr.MemberIDRequired)
		joined = ask[*kmsg.JoinGroupResponse](p, version, newJoin(group, joined.MemberID))
	}
	wantCode(p.t, "join", joined.ErrorCode, nil)
	return joined
}

// syncAlone assigns something to the only member.
func syncAlone(p *peer, version int16, group string, joined *kmsg.JoinGroupResponse) *kmsg.SyncGroupResponse {
	p.t.Helper()
	r := kmsg.NewPtrSyncGroupRequest()
	r.Group, r.Generation, r.MemberID = group, joined.Generation, joined.MemberID
	r.ProtocolType, r.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	assigned := kmsg.NewSyncGroupRequestGroupAssignment()
	assigned.MemberID, assigned.MemberAssignment = joined.MemberID, []byte("assignment")
	r.GroupAssignment = append(r.GroupAssignment, assigned)
	synced := ask[*kmsg.SyncGroupResponse](p, version, r)
	wantCode(p.t, "sync", synced.ErrorCode, nil)
	return synced
}

// commitOf returns a commit for one partition of a topic.
func commitOf(group string, joined *kmsg.JoinGroupResponse, name string, partition int32, offset int64) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.Generation, r.MemberID = group, joined.Generation, joined.MemberID
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = name
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Partition, p.Offset, p.LeaderEpoch, p.Metadata = partition, offset, 3, kmsg.StringPtr("text")
	t.Partitions = append(t.Partitions, p)
	r.Topics = append(r.Topics, t)
	return r
}

// noMember stands for a committer that is not a member.
var noMember = &kmsg.JoinGroupResponse{Generation: -1}

// The life of a member, in every version of every request.
func TestGroupInEveryVersion(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 2)
	for version := range int16(10) {
		t.Run(fmt.Sprint("version ", version), func(t *testing.T) {
			p := dial(t, s)
			p.t = t
			group := fmt.Sprint("g", version)
			joined := joinAlone(p, version, group)
			if joined.Generation != 1 || joined.LeaderID != joined.MemberID || len(joined.Members) != 1 ||
				*joined.Protocol != "range" || string(joined.Members[0].ProtocolMetadata) != "metadata" {
				t.Fatalf("joined %+v", joined)
			}
			synced := syncAlone(p, min(version, 5), group, joined)
			if string(synced.MemberAssignment) != "assignment" || version >= 5 && *synced.Protocol != "range" {
				t.Fatalf("synced %+v", synced)
			}
			beat := kmsg.NewPtrHeartbeatRequest()
			beat.Group, beat.Generation, beat.MemberID = group, joined.Generation, joined.MemberID
			wantCode(t, "heartbeat", ask[*kmsg.HeartbeatResponse](p, min(version, 4), beat).ErrorCode, nil)
			beat.Generation = 7
			wantCode(t, "heartbeat of another generation", ask[*kmsg.HeartbeatResponse](p, min(version, 4), beat).ErrorCode, kerr.IllegalGeneration)

			who := joined
			if version == 0 { // it names no member, so there must be none
				leaveAs(p, 0, group, joined.MemberID, nil)
				who = noMember
			}
			committed := ask[*kmsg.OffsetCommitResponse](p, version, commitOf(group, who, "orders", 1, 42))
			wantCode(t, "commit", committed.Topics[0].Partitions[0].ErrorCode, nil)
			wantCommitted(t, p, version, group)
			if version != 0 {
				describedAs(t, p, min(version, 6), group, joined.MemberID)
				leaveAs(p, min(version, 5), group, joined.MemberID, nil)
			}
			leaveAs(p, min(version, 5), group, joined.MemberID, kerr.UnknownMemberID)
			listedAs(t, p, min(version, 5), group)
		})
	}
}

func leaveAs(p *peer, version int16, group, member string, want *kerr.Error) {
	p.t.Helper()
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Group, r.MemberID = group, member
	leaving := kmsg.NewLeaveGroupRequestMember()
	leaving.MemberID, leaving.Reason = member, kmsg.StringPtr("the end")
	r.Members = append(r.Members, leaving)
	left := ask[*kmsg.LeaveGroupResponse](p, version, r)
	if version < 3 {
		wantCode(p.t, "leave", left.ErrorCode, want)
		return
	}
	wantCode(p.t, "leave", left.ErrorCode, nil)
	wantCode(p.t, "leave of the member", left.Members[0].ErrorCode, want)
}

func describedAs(t *testing.T, p *peer, version int16, group, member string) {
	t.Helper()
	r := kmsg.NewPtrDescribeGroupsRequest()
	r.Groups, r.IncludeAuthorizedOperations = []string{group, "nobody's"}, true
	described := ask[*kmsg.DescribeGroupsResponse](p, version, r)
	d := described.Groups[0]
	if d.ErrorCode != 0 || d.State != "Stable" || d.Protocol != "range" || d.Members[0].MemberID != member ||
		d.Members[0].ClientID != "test" || d.Members[0].ClientHost != "/127.0.0.1" ||
		string(d.Members[0].MemberAssignment) != "assignment" || version >= 3 && d.AuthorizedOperations != 1<<3|1<<6|1<<8 {
		t.Errorf("described %+v", d)
	}
	var want *kerr.Error
	if version >= 6 {
		want = kerr.GroupIDNotFound
	}
	wantCode(t, "describe no group", described.Groups[1].ErrorCode, want)
	if described.Groups[1].State != "Dead" {
		t.Errorf("a group that does not exist is %s, want Dead", described.Groups[1].State)
	}
}

func listedAs(t *testing.T, p *peer, version int16, group string) {
	t.Helper()
	r := kmsg.NewPtrListGroupsRequest()
	has := func(states, types []string) bool {
		r.StatesFilter, r.TypesFilter = states, types
		return slices.ContainsFunc(ask[*kmsg.ListGroupsResponse](p, version, r).Groups, func(g kmsg.ListGroupsResponseGroup) bool {
			return g.Group == group && g.ProtocolType == "consumer" && (version < 4 || g.GroupState == "Empty")
		})
	}
	if !has(nil, nil) || !has([]string{"stable", "empty"}, nil) || !has(nil, []string{"Classic"}) {
		t.Errorf("group %s is not listed", group)
	}
	if version >= 4 && has([]string{"Stable"}, nil) || version >= 5 && has(nil, []string{"consumer"}) {
		t.Errorf("group %s is listed, though the filter says otherwise", group)
	}
}

// wantCommitted checks that a group has committed offset 42 of orders/1.
func wantCommitted(t *testing.T, p *peer, version int16, group string) {
	t.Helper()
	r := kmsg.NewPtrOffsetFetchRequest()
	r.Group = group
	of := kmsg.NewOffsetFetchRequestTopic()
	of.Topic, of.Partitions = "orders", []int32{0, 1}
	r.Topics = append(r.Topics, of)
	inGroup, all := kmsg.NewOffsetFetchRequestGroup(), kmsg.NewOffsetFetchRequestGroup()
	inGroup.Group, all.Group = group, group
	ofGroup := kmsg.NewOffsetFetchRequestGroupTopic()
	ofGroup.Topic, ofGroup.Partitions = "orders", []int32{0, 1}
	inGroup.Topics = append(inGroup.Topics, ofGroup)
	got := ""
	if version < 8 {
		fetched := ask[*kmsg.OffsetFetchResponse](p, version, r)
		wantCode(t, "fetch offsets", fetched.ErrorCode, nil)
		got = offsetsIn(version, fetched)
		if version >= 2 {
			r.Topics = nil
			got += " " + offsetsIn(version, ask[*kmsg.OffsetFetchResponse](p, version, r))
		}
	} else {
		for _, asked := range []kmsg.OffsetFetchRequestGroup{inGroup, all} {
			r.Groups = []kmsg.OffsetFetchRequestGroup{asked}
			g := ask[*kmsg.OffsetFetchResponse](p, version, r).Groups[0]
			wantCode(t, "fetch offsets", g.ErrorCode, nil)
			for _, p := range g.Topics[0].Partitions {
				got += fmt.Sprintf("%d=%d,%d,%q ", p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata)
			}
		}
		got = got[:len(got)-1]
	}
	epoch := -1
	if version >= 6 {
		epoch = 3
	}
	want := fmt.Sprintf(`0=-1,-1,"" 1=42,%d,"text"`, epoch)
	if version >= 2 {
		want += fmt.Sprintf(` 1=42,%d,"text"`, epoch)
	}
	if got != want {
		t.Errorf("committed %s, want %s", got, want)
	}
}

func offsetsIn(version int16, r *kmsg.OffsetFetchResponse) (text string) {
	for i, p := range r.Topics[0].Partitions {
		if version < 5 {
			p.LeaderEpoch = -1
		}
		if i > 0 {
			text += " "
		}
		text += fmt.Sprintf("%d=%d,%d,%q", p.Partition, p.Offset, p.LeaderEpoch, *p.Metadata)
	}
	return text
}

// The offsets of an unknown group are no error: new consumers request them.
func TestOffsetFetchOfAnUnknownGroup(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 1)
	p := dial(t, s)
	for version := range int16(10) {
		r := kmsg.NewPtrOffsetFetchRequest()
		r.Group = "nobody's"
		of := kmsg.NewOffsetFetchRequestTopic()
		of.Topic, of.Partitions = "orders", []int32{0}
		r.Topics = append(r.Topics, of)
		inGroup := kmsg.NewOffsetFetchRequestGroup()
		inGroup.Group = "nobody's"
		ofGroup := kmsg.NewOffsetFetchRequestGroupTopic()
		ofGroup.Topic, ofGroup.Partitions = "orders", []int32{0}
		inGroup.Topics = append(inGroup.Topics, ofGroup)
		r.Groups = append(r.Groups, inGroup)
		fetched := ask[*kmsg.OffsetFetchResponse](p, version, r)
		if version >= 8 {
			g := fetched.Groups[0]
			if g.ErrorCode != 0 || g.Topics[0].Partitions[0].Offset != -1 || g.Topics[0].Partitions[0].ErrorCode != 0 {
				t.Errorf("version %d: %+v", version, g)
			}
			continue
		}
		if o := fetched.Topics[0].Partitions[0]; fetched.ErrorCode != 0 || o.ErrorCode != 0 || o.Offset != -1 {
			t.Errorf("version %d: %+v", version, fetched)
		}
	}
	if groups, err := b.Groups().List(); err != nil || len(groups) != 0 {
		t.Errorf("asking for offsets has made %v, %v", groups, err)
	}
}

// A waiting join delays only the answers of its own connection.
func TestJoinWaits(t *testing.T) {
	s, _ := serve(t, topic.Config{})
	first, second := dial(t, s), dial(t, s)
	joined := joinAlone(first, 9, "g")
	syncAlone(first, 5, "g", joined)

	r := newJoin("g", "")
	r.SetVersion(3) // this version gets no id first
	waiting := second.send(r)
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Group, beat.Generation, beat.MemberID = "g", joined.Generation, joined.MemberID
	for ask[*kmsg.HeartbeatResponse](first, 4, beat).ErrorCode != kerr.RebalanceInProgress.Code {
		<-time.After(time.Millisecond)
	}
	again := ask[*kmsg.JoinGroupResponse](first, 9, newJoin("g", joined.MemberID))
	follower := second.receive(r, waiting).(*kmsg.JoinGroupResponse)
	wantCode(t, "join", follower.ErrorCode, nil)
	if again.Generation != 2 || follower.Generation != 2 || len(again.Members) != 2 || len(follower.Members) != 0 || follower.LeaderID != again.MemberID {
		t.Fatalf("the leader is told %+v, the follower %+v", again, follower)
	}
}

// A lost connection leaves its member to the session timeout, whether it waits or not.
func TestLostConnectionIsNotALeave(t *testing.T) {
	s, b := serve(t, topic.Config{})
	first, second := dial(t, s), dial(t, s)
	joined := joinAlone(first, 9, "g")
	syncAlone(first, 5, "g", joined)
	r := newJoin("g", "")
	r.SetVersion(3)
	second.send(r)
	for range 2 {
		d, err := b.Groups().Describe("g")
		for err == nil && len(d.Members) < 2 {
			<-time.After(time.Millisecond)
			d, err = b.Groups().Describe("g")
		}
		if err != nil || len(d.Members) != 2 || d.State != group.PreparingRebalance {
			t.Fatalf("the group is %+v, %v", d, err)
		}
		_ = first.conn.Close()
		_ = second.conn.Close()
		s.awaitConnections(t, 0)
	}
	third := dial(t, s)
	again := ask[*kmsg.JoinGroupResponse](third, 9, newJoin("g", joined.MemberID))
	wantCode(t, "join on another connection", again.ErrorCode, nil)
	if len(again.Members) != 2 {
		t.Fatalf("the leader is told %+v, want the other to be there still", again.Members)
	}
}

// awaitConnections waits until the given number of clients is connected.
func (s *Server) awaitConnections(t *testing.T, want int) {
	t.Helper()
	for range patience.Milliseconds() {
		s.mu.Lock()
		got := len(s.connections)
		s.mu.Unlock()
		if got == want {
			return
		}
		<-time.After(time.Millisecond)
	}
	t.Fatalf("the server still has connections, want %d", want)
}

// A stopping server does not wait for members, and turns them away.
func TestStopSendsMembersAway(t *testing.T) {
	s, b := serve(t, topic.Config{})
	first, second := dial(t, s), dial(t, s)
	joinAlone(first, 9, "g")
	r := newJoin("g", "")
	r.SetVersion(3)
	waiting := second.send(r)
	for {
		if d, err := b.Groups().Describe("g"); err == nil && len(d.Members) == 2 {
			break
		}
		<-time.After(time.Millisecond)
	}
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		stop(t, s.Stop)
	}()
	wantCode(t, "join", second.receive(r, waiting).(*kmsg.JoinGroupResponse).ErrorCode, kerr.NotCoordinator)
	<-stopped
}

func TestCommitIsRefused(t *testing.T) {
	s, b := serve(t, topic.Config{})
	create(t, b, "orders", 1)
	p := dial(t, s)
	joined := joinAlone(p, 9, "g")
	commit := func(who *kmsg.JoinGroupResponse, name string, partition int32) int16 {
		return ask[*kmsg.OffsetCommitResponse](p, 9, commitOf("g", who, name, partition, 1)).Topics[0].Partitions[0].ErrorCode
	}
	wantCode(t, "commit before the assignment is known", commit(joined, "orders", 0), kerr.RebalanceInProgress)
	syncAlone(p, 5, "g", joined)
	wantCode(t, "commit", commit(joined, "orders", 0), nil)
	wantCode(t, "commit of a partition that is not there", commit(joined, "orders", 1), kerr.UnknownTopicOrPartition)
	wantCode(t, "commit of a topic that is not there", commit(joined, "refunds", 0), kerr.UnknownTopicOrPartition)
	wantCode(t, "commit of another generation", commit(&kmsg.JoinGroupResponse{Generation: 7, MemberID: joined.MemberID}, "orders", 0), kerr.IllegalGeneration)
	wantCode(t, "commit of no member", commit(noMember, "orders", 0), kerr.UnknownMemberID)
}
