package kafka

import (
	"errors"
	"reflect"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/group"
	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// Handlers find topics through their call, and ask it before they use what else a request names. So the
// code of a refusal is in the place where that of an unknown topic or group would be.

// unauthorized are the errors for resources that a client has no right to.
var unauthorized = map[auth.Resource]error{
	auth.Cluster:     fail(kerr.ClusterAuthorizationFailed, "the account has no right to do this to the cluster"),
	auth.Topic:       fail(kerr.TopicAuthorizationFailed, "the account has no right to do this to the topic"),
	auth.Group:       fail(kerr.GroupAuthorizationFailed, "the account has no right to do this to the group"),
	auth.Transaction: fail(kerr.TransactionalIDAuthorizationFailed, "the account has no right to use the transactional id"),
}

// authorize returns an error if the client may not send the request for a resource.
func (c *call) authorize(of auth.Resource, name string) error {
	if of == auth.Group && c.noPlace != nil {
		return c.noPlace
	}
	if c.may(c.key, of, name) {
		c.allowed(of, name)
		return nil
	}
	c.refused(of, name)
	return unauthorized[of]
}

// may reports whether the client may send a kind of request for a resource. It is for lists, which leave out what the
// client may not see: that is no refusal.
func (c *call) may(request int16, of auth.Resource, name string) bool {
	return c.principal == nil || c.principal.May(c.host, request, of, name)
}

// makes returns the group that a request makes if there is none of that name; "" if it makes none.
func makes(request kmsg.Request) string {
	name, does := "", false
	switch r := request.(type) {
	case *kmsg.JoinGroupRequest:
		name, does = r.Group, r.MemberID == ""
	case *kmsg.OffsetCommitRequest:
		name, does = r.Group, r.MemberID == "" && r.Generation < 0
	case *kmsg.TxnOffsetCommitRequest:
		name, does = r.Group, r.MemberID == "" && r.Generation < 0 && r.InstanceID == nil
	case *kmsg.ConsumerGroupHeartbeatRequest:
		name, does = r.Group, r.MemberEpoch == group.JoinEpoch
	case *kmsg.ShareGroupHeartbeatRequest:
		name, does = r.GroupID, r.MemberEpoch == group.JoinEpoch
	case *kmsg.AlterShareGroupOffsetsRequest:
		name, does = r.GroupID, true
	}
	if !does {
		return ""
	}
	return name
}

// needsPlace reports whether a group that the request makes counts for its owner first. A request that is refused anyway makes none.
func (c *call) needsPlace(group string) bool {
	return c.may(c.key, auth.Group, group) && c.session.server.broker.MakesGroup(group, c.owner())
}

// owner returns the owner of what the client creates; "" if that has none.
func (c *call) owner() string {
	if c.principal == nil {
		return ""
	}
	return c.principal.Owner()
}

// topic returns a topic that the request is allowed for. Reading a view is reading its source, unless the view lends it.
func (c *call) topic(name string) (*broker.Topic, error) {
	if err := c.authorize(auth.Topic, name); err != nil {
		return nil, err
	}
	t, err := c.session.server.broker.Topic(name)
	if err == nil && (c.key == keyFetch || c.key == keyShareFetch) && t.Source() != nil && !t.Lends() {
		err = c.authorize(auth.Topic, t.Source().Name())
	}
	return t, err
}

// mayLend returns an error if the request changes what a view lends of a source that the client may not read.
func (c *call) mayLend(name string) error {
	t, err := c.session.server.broker.Topic(name)
	if err != nil {
		return err
	}
	if !t.Lends() || c.may(keyFetch, auth.Topic, t.Source().Name()) {
		return nil
	}
	c.refused(auth.Topic, t.Source().Name())
	return refuse(kerr.TopicAuthorizationFailed, "the account has no right to read %q, of which others read the view without one", t.Source().Name())
}

// topicByID returns a topic that the request is allowed for, by its id.
func (c *call) topicByID(id topic.ID) (*broker.Topic, error) {
	t, err := c.session.server.broker.TopicByID(id)
	if errors.Is(err, topic.ErrNoTopic) {
		return nil, errNoTopicID
	}
	if err != nil {
		return nil, err
	}
	return c.topic(t.Name())
}

var errNoTopicID = fail(kerr.UnknownTopicID, "no topic has that id")

// topics returns all topics that the request is allowed for.
func (c *call) topics() []*broker.Topic {
	return slices.DeleteFunc(c.session.server.broker.Topics(), func(t *broker.Topic) bool { return !c.may(c.key, auth.Topic, t.Name()) })
}

// operations are the operations of the protocol's access lists, as the numbers of their bits, each with
// a request that it allows.
var operations = map[auth.Resource]map[int]int16{
	auth.Topic: {
		3: keyFetch, 4: keyProduce, 5: keyCreateTopics, 6: keyDeleteTopics, 7: keyCreatePartitions, 8: keyMetadata,
		10: keyDescribeConfigs, 11: keyAlterConfigs,
	},
	auth.Group: {3: keyOffsetCommit, 6: keyDeleteGroups, 8: keyDescribeGroups},
	auth.Cluster: {
		5: keyCreateTopics, 7: keyElectLeaders, 8: keyDescribeCluster, 9: keyElectLeaders, 10: keyDescribeConfigs, 11: keyElectLeaders,
		12: keyInitProducerID,
	},
}

// operations returns what the client may do to a resource, in bits.
func (c *call) operations(of auth.Resource, name string) (bits int32) {
	for bit, request := range operations[of] {
		if c.may(request, of, name) {
			bits |= 1 << bit
		}
	}
	return bits
}

// resourceNames begin the names of resources in the trail.
var resourceNames = map[auth.Resource]string{auth.Cluster: "cluster", auth.Topic: "topic:", auth.Group: "group:", auth.Transaction: "transaction:"}

// followedMost bounds the resources of one request that the trail gets.
const followedMost = 64

// allowed remembers, for the trail, that the request may use a resource.
func (c *call) allowed(of auth.Resource, name string) { c.about(resourceNames[of], name) }

// about remembers, for the trail, what the request is about.
func (c *call) about(kind, name string) {
	if x := c.exchange; x != nil && x.followed && len(x.allowed) < followedMost {
		x.allowed = append(x.allowed, kind+name)
	}
}

// refused records that the request may not use a resource.
func (c *call) refused(of auth.Resource, name string) {
	c.session.record(auth.Act{Key: c.key, Resources: []string{resourceNames[of] + name}, Outcome: auth.Refused, Code: errorName(code(unauthorized[of]))})
}

// recordAnswer records an answered request, with the resources that it was allowed to use. An answer has several codes:
// the first one counts that is no refusal, which have been recorded.
func (c *connection) recordAnswer(x *exchange, response kmsg.Response) {
	if len(x.allowed) == 0 {
		return
	}
	act := auth.Act{Key: x.key, Resources: x.allowed}
	if response != nil {
		countErrors(reflect.ValueOf(response).Elem(), func(code int16) {
			if act.Outcome == auth.Done && !isRefusal(code) {
				act.Outcome, act.Code = auth.Failed, errorName(code)
			}
		})
	}
	c.record(act)
}

func isRefusal(code int16) bool {
	switch code {
	case kerr.ClusterAuthorizationFailed.Code, kerr.TopicAuthorizationFailed.Code, kerr.GroupAuthorizationFailed.Code, kerr.TransactionalIDAuthorizationFailed.Code:
		return true
	}
	return false
}

// record puts an act of the client in the trail.
func (c *connection) record(act auth.Act) {
	trail := c.server.options.Trail
	if trail == nil {
		return
	}
	act.Principal, act.Host, act.Request = c.principal(), c.host, requestName(act.Key)
	trail.Record(act)
}

// recordStranger records a failed authentication, or a request without one.
func (c *connection) recordStranger(key int16) {
	c.record(auth.Act{Key: key, Outcome: auth.Unauthenticated, Code: errorName(kerr.SaslAuthenticationFailed.Code)})
}
