package serve

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl/plain"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka"
	"github.com/sluice-project/sluice/topic/storetest"
)

// quota sets a quota of a user by Kafka's admin call.
func (s *kafkaServer) quota(user, key string, most float64) {
	s.t.Helper()
	altered, err := s.admin().AlterClientQuotas(s.t.Context(), []kadm.AlterClientQuotaEntry{{
		Entity: kadm.ClientQuotaEntity{{Type: "user", Name: &user}}, Ops: []kadm.AlterClientQuotaOp{{Key: key, Value: most}},
	}})
	if err == nil {
		err = altered[0].Err
	}
	if err != nil {
		s.t.Fatal(err)
	}
}

// A user who may create topics has as many topics and partitions as the quotas say, by CreateTopics, CreatePartitions and by asking
// for a topic that is created then. Partitions that an admin adds count for the owner of the topic; the admin token has no quota.
func TestQuotasOfTopicsAndPartitions(t *testing.T) {
	s := serveKafkaOn(t, storetest.NewMemory(), topic.Config{Partitions: 1}, kafka.Options{Addr: "127.0.0.1:0"})
	s.quota("ada", access.MaxTopics, 3)
	s.quota("ada", access.MaxPartitions, 5)
	client := s.client(s.token(access.Principal{Name: "ada", Roles: []access.Role{access.Operator}}))
	ada, admin := kadm.NewClient(client), s.admin()
	create := func(by *kadm.Client, name string, partitions int32) error {
		t.Helper()
		made, err := by.CreateTopic(t.Context(), partitions, 1, nil, name)
		if err != nil && made.ErrMessage != "" && !strings.Contains(made.ErrMessage, "have an admin raise it") {
			t.Errorf("%s: the message is %q", name, made.ErrMessage)
		}
		return err
	}
	add := func(by *kadm.Client, more int, name string) error {
		t.Helper()
		grown, err := by.CreatePartitions(t.Context(), more, name)
		if err != nil {
			t.Fatal(err)
		}
		return grown[name].Err
	}
	if err := errors.Join(create(ada, "a", 3), create(admin, "admins", 9)); err != nil {
		t.Fatal(err)
	}
	if err := create(ada, "b", 3); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("a topic with too many partitions: %v", err)
	}
	for name, by := range map[string]*kadm.Client{"ada": ada, "an admin": admin} {
		if err := add(by, 3, "a"); !errors.Is(err, kerr.PolicyViolation) {
			t.Errorf("%s adds too many partitions: %v", name, err)
		}
	}
	if err := errors.Join(add(admin, 1, "a"), create(ada, "b", 1)); err != nil {
		t.Fatal(err)
	}
	ask := func() error {
		t.Helper()
		r := kmsg.NewPtrMetadataRequest()
		r.AllowAutoTopicCreation, r.Topics = true, []kmsg.MetadataRequestTopic{{Topic: kmsg.StringPtr("auto")}}
		response, err := client.SeedBrokers()[0].Request(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return kerr.ErrorForCode(response.(*kmsg.MetadataResponse).Topics[0].ErrorCode)
	}
	if err := ask(); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("a topic that is asked for: %v", err)
	}
	s.quota("ada", access.MaxPartitions, 6)
	if err := ask(); err != nil {
		t.Errorf("with a higher quota: %v", err)
	}
	s.quota("ada", access.MaxPartitions, 100)
	if err := create(ada, "c", 1); !errors.Is(err, kerr.PolicyViolation) {
		t.Errorf("a topic too many: %v", err)
	}
}

// askGroup returns the error in the answer to a request about a group.
func askGroup(t *testing.T, by *kgo.Client, r kmsg.Request) error {
	t.Helper()
	response, err := by.SeedBrokers()[0].Request(t.Context(), r)
	if err != nil {
		t.Fatal(err)
	}
	switch r := response.(type) {
	case *kmsg.JoinGroupResponse:
		return kerr.ErrorForCode(r.ErrorCode)
	case *kmsg.OffsetCommitResponse:
		return kerr.ErrorForCode(r.Topics[0].Partitions[0].ErrorCode)
	case *kmsg.ConsumerGroupHeartbeatResponse:
		return kerr.ErrorForCode(r.ErrorCode)
	case *kmsg.ShareGroupHeartbeatResponse:
		return kerr.ErrorForCode(r.ErrorCode)
	case *kmsg.AlterShareGroupOffsetsResponse:
		return kerr.ErrorForCode(r.ErrorCode)
	case *kmsg.DeleteGroupsResponse:
		return kerr.ErrorForCode(r.Groups[0].ErrorCode)
	}
	t.Fatalf("%T has no place for its error here", response)
	return nil
}

// commit is a commit of somebody who is no member of a group.
func commit(name string) kmsg.Request {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Group, r.Generation = name, -1
	of := kmsg.NewOffsetCommitRequestTopic()
	of.Topic, of.Partitions = "orders", []kmsg.OffsetCommitRequestTopicPartition{kmsg.NewOffsetCommitRequestTopicPartition()}
	r.Topics = append(r.Topics, of)
	return r
}

// A user has as many groups as the quota says, by whatever request makes them; groups that exist go on, and one that is deleted makes
// room. Somebody without a right to a group is refused for that, and the group does not count.
func TestQuotaOfGroups(t *testing.T) {
	s := serveKafka(t)
	s.create("orders")
	s.quota("ada", access.MaxGroups, 2)
	ada := s.client(s.token(access.Principal{Name: "ada", Roles: []access.Role{access.Consumer}, Groups: []string{"g-*"}}))
	admin := s.client(plain.Auth{User: "any", Pass: adminOfTests}.AsMechanism())
	if err := askGroup(t, ada, commit("other")); !errors.Is(err, kerr.GroupAuthorizationFailed) {
		t.Errorf("a group beyond the limits of the token: %v", err)
	}
	heartbeat := kmsg.NewPtrConsumerGroupHeartbeatRequest()
	heartbeat.Group, heartbeat.MemberID, heartbeat.SubscribedTopicNames, heartbeat.RebalanceTimeoutMillis, heartbeat.Topics = "g-2", "member-of-ada", []string{"orders"}, 60_000, []kmsg.ConsumerGroupHeartbeatRequestTopic{}
	if err := errors.Join(askGroup(t, ada, commit("g-1")), askGroup(t, ada, heartbeat), askGroup(t, admin, commit("admins-1")), askGroup(t, admin, commit("admins-2")), askGroup(t, admin, commit("admins-3"))); err != nil {
		t.Fatal(err)
	}
	join := kmsg.NewPtrJoinGroupRequest()
	join.Group, join.SessionTimeoutMillis, join.RebalanceTimeoutMillis, join.ProtocolType = "g-3", 30_000, 30_000, "consumer"
	share := kmsg.NewPtrShareGroupHeartbeatRequest()
	share.GroupID, share.MemberID, share.SubscribedTopicNames = "g-3", "member-of-ada", []string{"orders"}
	reset := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	reset.GroupID = "g-3"
	again := *heartbeat
	again.Group = "g-3"
	for _, r := range []kmsg.Request{join, share, reset, &again, commit("g-3")} {
		if err := askGroup(t, ada, r); !errors.Is(err, kerr.PolicyViolation) {
			t.Errorf("%T makes a group too many: %v", r, err)
		}
	}
	if err := askGroup(t, ada, commit("g-1")); err != nil {
		t.Errorf("a group that exists: %v", err)
	}
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{"g-1"}
	if err := errors.Join(askGroup(t, admin, remove), askGroup(t, ada, commit("g-3"))); err != nil {
		t.Errorf("after a group was deleted: %v", err)
	}
}
