package broker_test

import (
	"testing"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

func TestNodesOfOne(t *testing.T) {
	b := startBroker(t, storetest.NewMemory(), topic.Config{Advertise: topic.Advertised{Host: "here", Port: 9092, Rack: "a"}})
	want := topic.Node{ID: 1, Advertised: topic.Advertised{Host: "here", Port: 9092, Rack: "a"}, Alive: true}
	if got := b.Nodes(); len(got) != 1 || got[0] != want || b.Registered() != 1 {
		t.Errorf("nodes %+v, %d registered, want %+v", got, b.Registered(), want)
	}
}
