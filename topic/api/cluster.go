package api

import (
	"cmp"
	"context"
	"errors"
	"maps"
	"net"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/internal/edge"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

// Node is a node of the cluster.
type Node struct {
	ID        int32             `json:"id" doc:"Its number, from 1."`
	Kafka     string            `json:"kafka" doc:"Where Kafka clients reach it, host:port."`
	Listeners map[string]string `json:"listeners" nullable:"false" doc:"The addresses of its Kafka listeners by name, host:port, that of kafka among them. Empty: clients are told the one that they have connected to. None if the listener has no name."`
	HTTP      string            `json:"http" doc:"The URL of its HTTP interface."`
	Rack      string            `json:"rack" doc:"Its rack; empty if none is set."`
	Alive     bool              `json:"alive" doc:"It has sent a sign of life recently."`
	Draining  bool              `json:"draining" doc:"It gets no new replicas, and its replicas move to other nodes."`
	Leads     int               `json:"leads" doc:"Partitions that it leads."`
	Replicas  int               `json:"replicas" doc:"Partitions that it keeps a replica of."`
	Behind    int               `json:"behind" doc:"Those of them that are not in sync or cannot be reached."`
}

// KafkaAddresses returns where Kafka clients reach the node, as people read it: one address, or that of each listener after
// its name, by name. "auto" is the one that a client has connected to.
func (n *Node) KafkaAddresses() string {
	if len(n.Listeners) == 0 {
		return n.Kafka
	}
	var texts []string
	for _, name := range slices.Sorted(maps.Keys(n.Listeners)) {
		texts = append(texts, name+" "+cmp.Or(n.Listeners[name], "auto"))
	}
	return strings.Join(texts, ", ")
}

// Cluster is what a node knows of all nodes.
type Cluster struct {
	ClusterID  string `json:"cluster_id" doc:"The identity of the cluster."`
	Node       int32  `json:"node" doc:"The node that answers."`
	Nodes      []Node `json:"nodes" nullable:"false" doc:"All that belong to the cluster, by number."`
	Partitions int    `json:"partitions" doc:"Partitions of all topics."`
	Leaderless int    `json:"leaderless" doc:"Those of them that nobody leads now."`
	Moving     int    `json:"moving" doc:"Those of them whose replicas are being moved."`
}

// Reassignment is a partition whose replicas are being moved.
type Reassignment struct {
	Topic     string  `json:"topic"`
	Partition int32   `json:"partition"`
	Target    []int32 `json:"target" nullable:"false" doc:"The nodes that are to keep it, the preferred leader first."`
	Replicas  []int32 `json:"replicas" nullable:"false" doc:"The nodes that keep it now."`
	Adding    []int32 `json:"adding" nullable:"false" doc:"Those that are getting it."`
	Removing  []int32 `json:"removing" nullable:"false" doc:"Those that give it up when the others have it."`
}

// ReassignmentList has the reassignments in progress.
type ReassignmentList struct {
	Reassignments []Reassignment `json:"reassignments" nullable:"false" doc:"By topic and partition."`
}

// TopicChange is what to change of a topic.
type TopicChange struct {
	Replicas   *int   `json:"replicas,omitempty" minimum:"1" maximum:"5" doc:"How many nodes are to keep each partition. They are moved in the background; see GET /v1/cluster/reassignments."`
	Partitions *int32 `json:"partitions,omitempty" minimum:"1" doc:"How many partitions there are to be. If that is less, the highest ones go: producers do not find them any more, and their records can be read by partition number until the grace period is over."`
	GraceMS    *int64 `json:"grace_ms,omitempty" minimum:"0" maximum:"31536000000" doc:"How long the records of partitions that go can be read. Default: 7 days, or the retention of the topic if that is less."`
}

// Moved is how many partitions begin to move.
type Moved struct {
	Moves int `json:"moves" doc:"Partitions whose replicas begin to move."`
}

// Refused is a partition that its preferred replica does not lead.
type Refused struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Detail    string `json:"detail" doc:"Why not."`
}

// Elected is the result of electing preferred leaders.
type Elected struct {
	Elected int       `json:"elected" doc:"Partitions that have got their preferred leader."`
	Refused []Refused `json:"refused" nullable:"false" doc:"Those that have not, except those that already had it."`
}

// registerCluster adds the operations of a cluster.
func (s *server) registerCluster() {
	register(s, "show-cluster", "GET /v1/cluster", "The nodes, and what each leads and keeps", s.cluster)
	register(s, "list-reassignments", "GET /v1/cluster/reassignments", "Partitions whose replicas are being moved", s.reassignments)
	register(s, "balance-cluster", "POST /v1/cluster/balance", "Spread replicas evenly over the nodes, as after one was added", s.balance)
	register(s, "prefer-leaders", "POST /v1/cluster/leaders", "Let the preferred replicas lead their partitions", s.preferLeaders)
	register(s, "drain-node", "POST /v1/cluster/nodes/{id}/drain", "Move all replicas of a node to others, and give it no new ones", s.drain)
	registerDone(s, "resume-node", "POST /v1/cluster/nodes/{id}/resume", "Let a drained node have replicas again", s.resume)
	registerDone(s, "remove-node", "DELETE /v1/cluster/nodes/{id}", "Remove a node that has stopped, and keeps nothing, from the cluster", s.removeNode)
}

type outCluster struct{ Body Cluster }

func (s *server) cluster(ctx context.Context, _ *struct{}) (*outCluster, error) {
	out := &outCluster{Body: Cluster{ClusterID: s.broker.ClusterID(), Node: s.broker.Node(), Nodes: []Node{}}}
	for _, n := range s.broker.Nodes() {
		node := Node{ID: n.ID, HTTP: n.HTTP, Rack: n.Rack, Alive: n.Alive, Draining: n.Draining, Listeners: n.Listeners}
		if node.Listeners == nil {
			node.Listeners = map[string]string{}
		}
		if n.Port > 0 {
			node.Kafka = net.JoinHostPort(n.Host, strconv.Itoa(int(n.Port)))
		}
		out.Body.Nodes = append(out.Body.Nodes, node)
	}
	moves, err := s.broker.Reassignments(ctx)
	if err != nil {
		return nil, err
	}
	out.Body.Moving = len(moves)
	var partitions []*broker.Partition
	for _, t := range s.broker.Topics() {
		if t.Source() == nil {
			partitions = append(partitions, t.Partitions()...)
		}
	}
	s.broker.AwaitReplicas(ctx, partitions)
	out.Body.count(partitions)
	return out, nil
}

// count adds partitions to what the nodes lead and keep.
func (c *Cluster) count(partitions []*broker.Partition) {
	at := func(id int32) *Node {
		for i := range c.Nodes {
			if c.Nodes[i].ID == id {
				return &c.Nodes[i]
			}
		}
		return &Node{} // a replica of a node that is not registered any more
	}
	for _, p := range partitions {
		c.Partitions++
		if leader := p.Leader(); leader >= 0 {
			at(leader).Leads++
		} else {
			c.Leaderless++
		}
		current := p.InSync()
		for _, id := range p.Replicas() {
			node := at(id)
			node.Replicas++
			if !slices.Contains(current, id) {
				node.Behind++
			}
		}
	}
}

type outReassignments struct{ Body ReassignmentList }

func (s *server) reassignments(ctx context.Context, _ *struct{}) (*outReassignments, error) {
	moves, err := s.broker.Reassignments(ctx)
	if err != nil {
		return nil, err
	}
	out := &outReassignments{Body: ReassignmentList{Reassignments: make([]Reassignment, 0, len(moves))}}
	for _, m := range moves {
		out.Body.Reassignments = append(out.Body.Reassignments, Reassignment{
			Topic: m.Topic, Partition: m.Partition, Target: list(m.Target), Replicas: list(m.Replicas), Adding: list(m.Adding), Removing: list(m.Removing),
		})
	}
	return out, nil
}

// list is a list that is never null.
func list(numbers []int32) []int32 {
	if numbers == nil {
		return []int32{}
	}
	return numbers
}

type outMoved struct{ Body Moved }

// moved answers with how many partitions move.
func moved(moves int, err error) (*outMoved, error) { return &outMoved{Moved{moves}}, err }

func (s *server) balance(ctx context.Context, _ *struct{}) (*outMoved, error) {
	return moved(s.broker.Balance(ctx))
}

type inLeaders struct {
	Topic string `query:"topic" maxLength:"249" doc:"The name of a topic; without it: all topics."`
}

type outElected struct{ Body Elected }

// electAtOnce is for how many topics leaders are elected concurrently: each may take
// seconds.
const electAtOnce = 16

func (s *server) preferLeaders(ctx context.Context, in *inLeaders) (*outElected, error) {
	topics := s.broker.Topics()
	if in.Topic != "" {
		t, err := s.broker.Topic(in.Topic)
		if err != nil {
			return nil, err
		}
		topics = []*broker.Topic{t}
	}
	results := make([]Elected, len(topics))
	electing, ctx := errgroup.WithContext(ctx)
	electing.SetLimit(electAtOnce)
	for i, t := range topics {
		if t.Source() == nil {
			electing.Go(func() (err error) {
				results[i], err = s.elect(ctx, t)
				return err
			})
		}
	}
	if err := electing.Wait(); err != nil {
		return nil, err
	}
	out := &outElected{Body: Elected{Refused: []Refused{}}}
	for _, result := range results {
		out.Body.Elected += result.Elected
		out.Body.Refused = append(out.Body.Refused, result.Refused...)
	}
	return out, nil
}

// elect lets the preferred replicas of a topic's partitions lead them.
func (s *server) elect(ctx context.Context, t *broker.Topic) (Elected, error) {
	partitions := make([]int32, len(t.Partitions()))
	for i := range partitions {
		partitions[i] = int32(i)
	}
	refused, err := s.broker.ElectLeaders(ctx, t.Name(), partitions)
	if err != nil {
		return Elected{}, err
	}
	result := Elected{Elected: len(partitions) - len(refused)}
	for _, number := range slices.Sorted(maps.Keys(refused)) {
		if why := refused[number]; !errors.Is(why, topic.ErrElectionNotNeeded) {
			result.Refused = append(result.Refused, Refused{t.Name(), number, why.Error()})
		}
	}
	return result, nil
}

type inNode struct {
	ID int32 `path:"id" minimum:"1" doc:"The number of a node."`
}

func (s *server) drain(ctx context.Context, in *inNode) (*outMoved, error) {
	return moved(s.broker.Drain(ctx, in.ID, true))
}

func (s *server) resume(ctx context.Context, in *inNode) error {
	_, err := s.broker.Drain(ctx, in.ID, false)
	return err
}

func (s *server) removeNode(ctx context.Context, in *inNode) error {
	return s.broker.RemoveNode(ctx, in.ID)
}

type inChange struct {
	Topic string `path:"topic" maxLength:"249" doc:"The name of a topic."`
	Body  TopicChange
}

func (s *server) changeTopic(ctx context.Context, in *inChange) error {
	change := in.Body
	if change.Replicas == nil && change.Partitions == nil {
		return edge.Refuse(http.StatusUnprocessableEntity, CodeInvalid, "want replicas or partitions")
	}
	t, err := s.broker.Topic(in.Topic)
	if err != nil {
		return err
	}
	fewer := change.Partitions != nil && int(*change.Partitions) < len(t.Partitions())
	if change.GraceMS != nil && !fewer {
		return edge.Refuse(http.StatusUnprocessableEntity, CodeInvalid, "grace_ms: it is for fewer partitions than there are")
	}
	switch {
	case fewer:
		grace := time.Duration(0) // the default
		if change.GraceMS != nil {
			if grace = time.Duration(*change.GraceMS) * time.Millisecond; grace == 0 {
				grace = -1
			}
		}
		err = s.broker.RemovePartitions(ctx, in.Topic, *change.Partitions, grace)
	case change.Partitions != nil && int(*change.Partitions) > len(t.Partitions()):
		err = s.broker.AddPartitions(ctx, in.Topic, *change.Partitions, false)
	}
	if err == nil && change.Replicas != nil {
		err = s.broker.SetReplicas(ctx, in.Topic, *change.Replicas)
	}
	return err
}
