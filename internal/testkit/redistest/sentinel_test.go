//go:build redis

package redistest_test

import (
	"strings"
	"testing"

	"github.com/sluice-project/sluice/internal/testkit/redistest"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

func TestAReplicaTakesOver(t *testing.T) {
	t.Parallel()
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
	// On a busy machine another master may be named by then.
	until.True(t, "the first master is in step with the present one", func() bool {
		_, err := set.Master().Try("SET", "key", "changed")
		return err == nil && first.Cli("GET", "key") == "changed"
	})
}
