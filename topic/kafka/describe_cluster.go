package kafka

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The types of endpoints that a client may request from DescribeCluster.
const (
	endpointBrokers     = 1
	endpointControllers = 2
)

// DescribeCluster: versions 0 to 2.
//
//   - The answer has the live nodes, or this broker alone, with their advertised addresses and racks;
//     the first is the controller.
//   - 2: also the nodes that are not alive, as fenced, if the client asks for them.
//   - There are no separate controllers to describe.
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
	nodes := s.nodes(c)
	response.ClusterID, response.ControllerID = s.broker.ClusterID(), controller(nodes)
	if r.Version >= 2 && r.IncludeFencedBrokers {
		for _, n := range s.broker.Nodes() {
			if !n.Alive && !among(nodes, n.ID) {
				nodes = append(nodes, s.reached(c, n))
			}
		}
	}
	for _, n := range nodes {
		broker := kmsg.NewDescribeClusterResponseBroker()
		broker.NodeID, broker.Host, broker.Port, broker.Rack, broker.IsFenced = n.ID, n.Host, n.Port, rackOf(n), !n.Alive
		response.Brokers = append(response.Brokers, broker)
	}
	return respond(response)
}
