package kafka

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/testkit/until"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/kafka/auth"
	"github.com/sluice-project/sluice/topic/kafka/kafkatest"
	"github.com/sluice-project/sluice/topic/storetest"
)

// testTrail follows what changes topics.
type testTrail struct {
	mu   sync.Mutex
	acts []string
}

func (t *testTrail) Follows(request int16) bool {
	return request == keyCreateTopics || request == keyDeleteTopics
}

func (t *testTrail) Record(act auth.Act) {
	t.mu.Lock()
	defer t.mu.Unlock()
	name := ""
	if act.Principal != nil {
		name = act.Principal.Name()
	}
	t.acts = append(t.acts, fmt.Sprintf("%s %s %d %s %s %s", name, act.Request, act.Outcome, act.Code, strings.Join(act.Resources, ","), act.Host))
}

func (t *testTrail) take() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	taken := t.acts
	t.acts = nil
	return taken
}

// The trail gets failed authentications, refusals of all kinds of requests, and those that it follows with what became
// of them. Lists that leave something out are no refusals.
func TestTheTrailOfRequests(t *testing.T) {
	trail := &testTrail{}
	all := newAccounts("boss")
	all.add(&account{name: "shop", may: func(_ int16, _ auth.Resource, name string) bool { return name == "mine" }})
	b := startBroker(t, storetest.NewMemory(), topic.Config{})
	s := start(t, b, Options{Accounts: all, Trail: trail})
	boss, shop := dial(t, s), dial(t, s)
	boss.authenticate("boss")
	shop.authenticate("shop")
	makes := func(names ...string) *kmsg.CreateTopicsRequest {
		r := kmsg.NewPtrCreateTopicsRequest()
		for _, name := range names {
			of := kmsg.NewCreateTopicsRequestTopic()
			of.Topic, of.NumPartitions, of.ReplicationFactor = name, 1, 1
			r.Topics = append(r.Topics, of)
		}
		return r
	}
	const host = " 127.0.0.1"
	for _, test := range []struct {
		who  *peer
		sent kmsg.Request
		want []string
	}{
		{boss, makes("mine", "other"), []string{"boss CreateTopics 0  topic:mine,topic:other" + host}},
		{boss, makes("mine"), []string{"boss CreateTopics 1 TOPIC_ALREADY_EXISTS topic:mine" + host}},
		{shop, makes("other"), []string{"shop CreateTopics 2 TOPIC_AUTHORIZATION_FAILED topic:other" + host}},
		{shop, makes("other", "mine"), []string{
			"shop CreateTopics 2 TOPIC_AUTHORIZATION_FAILED topic:other" + host, "shop CreateTopics 1 TOPIC_ALREADY_EXISTS topic:mine" + host,
		}},
		{boss, kafkatest.Request(keyDeleteGroups, 2, kafkatest.Names{Group: "workers"}), nil}, // is not followed
		{shop, kafkatest.Request(keyDeleteGroups, 2, kafkatest.Names{Group: "workers"}), []string{
			"shop DeleteGroups 2 GROUP_AUTHORIZATION_FAILED group:workers" + host,
		}},
		{shop, kmsg.NewPtrMetadataRequest(), nil}, // all topics that it may see
		{shop, kmsg.NewPtrListGroupsRequest(), nil},
	} {
		ask[kmsg.Response](test.who, 2, test.sent)
		if got := trail.take(); !slices.Equal(got, test.want) {
			t.Errorf("%T: got %q, want %q", test.sent, got, test.want)
		}
	}
	stranger := dial(t, s)
	if stranger.authenticate("nobody").ErrorCode == 0 {
		t.Error("nobody is known")
	}
	dial(t, s).send(kmsg.NewPtrListGroupsRequest())
	want := []string{" ListGroups 3 SASL_AUTHENTICATION_FAILED " + host, " SASLAuthenticate 3 SASL_AUTHENTICATION_FAILED " + host}
	var got []string
	until.True(t, "strangers are in the trail", func() bool {
		got = append(got, trail.take()...)
		return len(got) == len(want)
	})
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
