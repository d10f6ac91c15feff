package serve

import (
	"errors"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

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
