//go:build cluster && long

package cluster

import (
	"math/rand/v2"
	"os"
	"testing"
	"time"
)

// chaosInterval is the least time between two faults.
const chaosInterval = 20 * time.Second

// Three nodes hold three replicas of everything, and the leader suffers one fault after another,
// under load: no acknowledged record is lost, doubled or out of order for any reader.
func TestChaos(t *testing.T) {
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

// chaosTime returns how long TestChaos runs.
func chaosTime(t *testing.T) time.Duration {
	t.Helper()
	text := os.Getenv("SLUICE_CHAOS")
	if text == "" {
		return time.Minute
	}
	wanted, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("SLUICE_CHAOS: %v; want a duration such as 10m", err)
	}
	return wanted
}
