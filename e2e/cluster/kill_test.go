//go:build cluster

package cluster

import (
	"testing"
	"time"

	"github.com/sluice-project/sluice/e2e/cluster/history"
)

// rounds returns how often a test of one fault repeats it.
func rounds() int {
	if long() {
		return 5
	}
	return 1
}

// The leader of most partitions is killed: another node takes over after an election.
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

// The nodes are restarted one after another, the first time for an upgrade from an earlier version:
// each transfers its leadership before it stops.
func TestPlannedStop(t *testing.T) {
	c := newCluster(t, layout{nodes: 3, binary: earlierBinary(t)})
	l := newLoad(c, 6, 3)
	l.flows(500)
	for range rounds() {
		for _, n := range c.nodes {
			n.binary = binary
			l.suffer(stop, n.id)
			l.flows(500)
		}
	}
	checkInterruptions(t, l.finish())
}

// mostInterrupted is a generous bound for the interruption of clients by a fault; it covers a slow
// machine and failed elections. The report has the measurements.
const mostInterrupted = time.Minute

func checkInterruptions(t *testing.T, r *history.Report) {
	t.Helper()
	for kind, spread := range r.Kinds {
		if most := time.Duration(spread.MaxMS) * time.Millisecond; most > mostInterrupted {
			t.Errorf("%s: a partition acknowledged nothing for %v, want at most %v", kind, most, mostInterrupted)
		}
	}
}
