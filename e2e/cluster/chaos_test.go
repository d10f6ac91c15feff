package cluster

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluice-project/sluice/e2e/cluster/history"
)

// chaosInterval is the least time between two faults.
const chaosInterval = 20 * time.Second

// Three nodes keep three replicas of everything, and a leader suffers one thing
// after another, under load: nothing that was acknowledged is lost, doubled or out
// of order, whoever reads.
func TestChaos(t *testing.T) {
	if onlyLong(t) {
		return
	}
	c := newCluster(t, layout{nodes: 3, proxied: true})
	l := newLoad(c, 6, 3)
	l.flows(500)
	end := time.Now().Add(chaosTime(t))
	for time.Now().Before(end) {
		for _, i := range rand.Perm(len(faults)) {
			if !time.Now().Before(end) {
				break
			}
			next := time.After(chaosInterval)
			l.suffer(faults[i], c.leader(l.admin))
			l.flows(200)
			<-next
		}
	}
	checkInterruptions(t, l.finish())
}

// rounds is how often a test of one fault repeats it.
func rounds() int {
	if long() {
		return 5
	}
	return 1
}

// The leader of most partitions is killed: another node goes on after an election.
func TestKill(t *testing.T) {
	c := newCluster(t, layout{nodes: 3})
	l := newLoad(c, 6, 3)
	l.flows(500)
	for range rounds() {
		l.suffer(kill, c.leader(l.admin))
		l.flows(500)
	}
	checkInterruptions(t, l.finish())
}

// Every node is stopped and started again, one after the other, as for a new
// version: it hands over what it leads before it goes. The short run stops one.
func TestPlannedStop(t *testing.T) {
	c := newCluster(t, layout{nodes: 3})
	l := newLoad(c, 6, 3)
	l.flows(500)
	for range rounds() {
		for _, n := range c.nodes {
			l.suffer(stop, n.id)
			l.flows(500)
			if !long() {
				break
			}
		}
	}
	checkInterruptions(t, l.finish())
}

// mostInterrupted bounds, generously, how long clients may be kept waiting by each
// kind of fault: a slow machine, and elections that fail, are within it. What is
// measured is in the report.
func mostInterrupted(kind string) time.Duration {
	if kind == stop.kind {
		return 15 * time.Second
	}
	return time.Minute
}

func checkInterruptions(t *testing.T, r *history.Report) {
	t.Helper()
	for kind, spread := range r.Kinds {
		if most := time.Duration(spread.MaxMS) * time.Millisecond; most > mostInterrupted(kind) {
			t.Errorf("%s: a partition acknowledged nothing for %v, want at most %v", kind, most, mostInterrupted(kind))
		}
	}
}
