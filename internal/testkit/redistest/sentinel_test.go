//go:build redis

package redistest_test

import (
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

func TestAReplicaTakesOver(t *testing.T) {
	set := redistest.StartSentinel(t, redistest.SentinelOptions{Persist: redistest.Always})
	if !strings.Contains(set.URL(), "master_set=") || strings.Count(set.URL(), "addr=") != len(set.Sentinels())-1 {
		t.Errorf("it is at %s", set.URL())
	}
	first := set.Master()
	first.Cli("SET", "key", "there")
	// The write is on the replica before the master dies.
	if got := first.Cli("WAIT", "1", "30000"); got != "1" {
		t.Fatalf("%s replicas have the write", got)
	}
	if killed := set.Failover(); killed != first {
		t.Error("what was killed was not the master")
	}
	second := set.Master()
	if second == first {
		t.Fatal("the master is the one that was killed")
	}
	if got := second.Cli("GET", "key"); got != "there" {
		t.Errorf("%q after the failover", got)
	}
	first.Restart()
	set.AwaitReplicas()
	second.Cli("SET", "key", "changed")
	until.True(t, "the first master follows the second", func() bool { return first.Cli("GET", "key") == "changed" })
}
