package bench

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Clusters keep all acknowledged records, in any measure, on three nodes.
func TestReplicate(t *testing.T) {
	for _, cluster := range environment.Clusters() {
		t.Run(cluster.Name, func(t *testing.T) {
			const d = 300 * time.Millisecond
			r, err := Replicate(t.Context(), cluster, 200, d)
			for tries := 1; errors.Is(err, ErrBehind) && tries < 20; tries++ { // the machine was less busy at the peak
				r, err = Replicate(t.Context(), cluster, 200, d)
			}
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range append(r.Small[:], r.Large[:]...) {
				if p.Sent.Jobs == 0 || p.Sent.Took < d || p.SentCPU <= 0 {
					t.Errorf("produced %+v", p)
				}
			}
			for _, l := range []Latency{r.Alone, r.Half, r.Same} {
				if l.Records == 0 || l.Median <= 0 || l.P99 < l.Median {
					t.Errorf("latency %+v", l)
				}
			}
		})
	}
}

// A cluster that loses records is an error, not a faster one.
func TestReplicateOfALosingCluster(t *testing.T) {
	cluster := Broker{Name: "losing", Start: func(context.Context) (Server, error) { return &losingServer{}, nil }}
	if _, err := Replicate(t.Context(), cluster, 0, time.Millisecond); err == nil || !strings.Contains(err.Error(), "acknowledged, but it has") {
		t.Errorf("error %v, want one that tells of the loss", err)
	}
}

// Producing to a topic begins only when all nodes hold all its partitions.
func TestComplete(t *testing.T) {
	partition := func(change func(*kadm.PartitionDetail)) kadm.TopicDetail {
		p := kadm.PartitionDetail{Leader: 1, ISR: []int32{1, 2, 3}}
		change(&p)
		return kadm.TopicDetail{Topic: "t", Partitions: kadm.PartitionDetails{0: p}}
	}
	whole := partition(func(*kadm.PartitionDetail) {})
	if err := complete(whole, 1); err != nil {
		t.Errorf("a whole topic: %v", err)
	}
	for name, topic := range map[string]kadm.TopicDetail{
		"an error":        {Err: kerr.UnknownTopicOrPartition},
		"no partition":    {Topic: "t"},
		"no leader":       partition(func(p *kadm.PartitionDetail) { p.Leader = -1 }),
		"a replica fewer": partition(func(p *kadm.PartitionDetail) { p.ISR = p.ISR[:2] }),
		"a bad partition": partition(func(p *kadm.PartitionDetail) { p.Err = errors.New("bad") }),
	} {
		if err := complete(topic, 1); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
