package cluster

import (
	"context"
	"fmt"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/profile"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/api"
	"github.com/sluice-project/sluice/topic/broker"
)

// fakeNodes simulates four nodes, of which the third is dead.
type fakeNodes struct {
	api.Broker
	nodes []topic.Node
	moves []broker.Reassignment
}

func newFakeNodes() *fakeNodes {
	f := &fakeNodes{moves: []broker.Reassignment{
		{Topic: "orders", Partition: 1, Target: []int32{2, 1, 4}, Replicas: []int32{1, 2, 3}, Adding: []int32{4}, Removing: []int32{3}},
	}}
	for id := int32(1); id <= 4; id++ {
		f.nodes = append(f.nodes, topic.Node{ID: id, Alive: id != 3, Advertised: topic.Advertised{
			Host: fmt.Sprint("10.0.0.", id), Port: 9092, HTTP: fmt.Sprintf("http://10.0.0.%d:8080", id), Rack: []string{"a", "b"}[id%2],
		}})
	}
	f.nodes[3].Listeners = map[string]string{"public": "", "internal": "10.0.0.4:9092"}
	return f
}

func (f *fakeNodes) Node() int32 { return 1 }

func (f *fakeNodes) ClusterID() string { return "identity" }

func (f *fakeNodes) Nodes() []topic.Node { return f.nodes }

func (f *fakeNodes) Topics() []*broker.Topic { return nil }

func (f *fakeNodes) AwaitReplicas(context.Context, []*broker.Partition) {}

func (f *fakeNodes) Reassignments(context.Context) ([]broker.Reassignment, error) {
	return f.moves, nil
}

func (f *fakeNodes) Balance(context.Context) (int, error) { return len(f.moves), nil }

func (f *fakeNodes) Topic(name string) (*broker.Topic, error) {
	return nil, fmt.Errorf("%w: %q", topic.ErrNoTopic, name)
}

func (f *fakeNodes) ElectLeaders(context.Context, string, []int32) (map[int32]error, error) {
	return nil, nil
}

func (f *fakeNodes) at(id int32) (int, error) {
	at := slices.IndexFunc(f.nodes, func(n topic.Node) bool { return n.ID == id })
	if at < 0 {
		return at, fmt.Errorf("%w: %d", topic.ErrNoNode, id)
	}
	return at, nil
}

func (f *fakeNodes) Drain(_ context.Context, id int32, drain bool) (int, error) {
	at, err := f.at(id)
	if err == nil {
		f.nodes[at].Draining = drain
	}
	return 0, err
}

func (f *fakeNodes) RemoveNode(_ context.Context, id int32) error {
	at, err := f.at(id)
	switch {
	case err != nil:
		return err
	case f.nodes[at].Alive:
		return fmt.Errorf("%w: node %d is alive; it is drained, so stop it, and remove it then", topic.ErrNodeInUse, id)
	}
	f.nodes = slices.Delete(f.nodes, at, at+1)
	return nil
}

func TestClusterCommands(t *testing.T) {
	fake := newFakeNodes()
	web := httptest.NewServer(api.New(fake))
	t.Cleanup(web.Close)
	t.Setenv(profile.ServerVariable, web.URL)
	s := clitest.PlainSession(t, Command)
	s.Run("cluster show")
	s.Run("cluster show --json")
	s.Run("cluster balance")
	s.Run("cluster drain 4 --no-wait")
	s.Run("cluster drain 4")
	s.Run("cluster drain 4 --json")
	s.Run("cluster drain 9")
	s.Run("cluster drain")
	s.Run("cluster drain four")
	s.Run("cluster drain 4 --timeout 0s")
	s.Run("cluster resume 4")
	s.Run("cluster remove 4")
	s.Run("cluster remove 3")
	s.Run("cluster remove 3")
	fake.moves = nil
	s.Run("cluster show")
	s.Run("cluster balance")
	s.Run("cluster leaders")
	s.Run("cluster leaders --topic nosuch")
	clitest.Golden(t, "cluster", s.Log.String())
}
