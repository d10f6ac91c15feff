package broker_test

import (
	"reflect"
	"testing"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/storetest"
)

func TestNodesOfOne(t *testing.T) {
	at := topic.Advertised{Host: "here", Port: 9092, Listeners: map[string]string{"public": "there:9093"}, Rack: "a"}
	b := startBroker(t, storetest.NewMemory(), topic.Config{Advertise: at})
	want := []topic.Node{{ID: 1, Advertised: at, Alive: true}}
	if got := b.Nodes(); !reflect.DeepEqual(got, want) || b.Registered() != 1 {
		t.Errorf("nodes %+v, %d registered, want %+v", got, b.Registered(), want)
	}
}
