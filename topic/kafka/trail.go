package kafka

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/topic/kafka/auth"
)

// resourceNames begin the names of resources in the trail.
var resourceNames = map[auth.Resource]string{auth.Cluster: "cluster", auth.Topic: "topic:", auth.Group: "group:", auth.Transaction: "transaction:"}

// followedMost bounds the resources of one request that the trail gets.
const followedMost = 64

// allowed remembers, for the trail, that the request may use a resource.
func (c *call) allowed(of auth.Resource, name string) {
	if x := c.exchange; x != nil && x.followed && len(x.allowed) < followedMost {
		x.allowed = append(x.allowed, resourceNames[of]+name)
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
