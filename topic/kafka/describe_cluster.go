package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The endpoints that a client may ask DescribeCluster for.
const (
	endpointBrokers     = 1
	endpointControllers = 2
)

// DescribeCluster: versions 0 to 2.
//
//   - One broker, this one, at the address that it advertises; it is the
//     controller too, and never fenced.
//   - There are no controllers of their own to describe.
func (s *Server) describeCluster(c *call, r *kmsg.DescribeClusterRequest) answer {
	response := r.ResponseKind().(*kmsg.DescribeClusterResponse)
	if r.Version >= 1 {
		response.EndpointType = r.EndpointType
	}
	if response.EndpointType != endpointBrokers {
		err := refuse(kerr.UnsupportedEndpointType, "endpoint type %d: want %d, brokers", r.EndpointType, endpointBrokers)
		if r.EndpointType == endpointControllers {
			err = refuse(kerr.MismatchedEndpointType, "this is a broker, not a controller: want endpoint type %d", endpointBrokers)
		}
		response.ErrorCode, response.ErrorMessage = s.outcome("describe cluster", err)
		return respond(response)
	}
	response.ClusterID, response.ControllerID = s.broker.ClusterID(), s.broker.Node()
	broker := kmsg.NewDescribeClusterResponseBroker()
	broker.NodeID = s.broker.Node()
	broker.Host, broker.Port = s.advertised(c)
	response.Brokers = append(response.Brokers, broker)
	return respond(response)
}
