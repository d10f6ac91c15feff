package e2e

import (
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// moveSecret is the secret that both ends of a migration and the command share.
const moveSecret = "SLUICE_CLUSTER_SECRET=a secret of the smoke test"

// movedShown is the part of the command's output that tests need.
type movedShown struct {
	Topics, Partitions, Groups, Replicas int
	Records                              int64
	PauseMS                              int64 `json:"pause_ms"`
	MovedBefore                          bool  `json:"moved_before"`
	Aborted                              bool
}

// migrate runs the command, which must succeed.
func (c *nodes) migrate(from string, args ...string) (shown movedShown) {
	c.t.Helper()
	command := exec.Command(binary, append([]string{"topic", "migrate", "--from", from, "--to", c.all[1].url(""), "--json"}, args...)...)
	command.Env = append(command.Environ(), moveSecret)
	var out, said strings.Builder
	command.Stdout, command.Stderr = &out, &said
	if err := command.Run(); err != nil {
		c.t.Fatalf("%v: %v\n%s%s", args, err, out.String(), said.String())
	}
	if err := json.Unmarshal([]byte(out.String()), &shown); err != nil {
		c.t.Fatalf("%v\n%s", err, out.String())
	}
	return shown
}

// startsNoMore checks that a server whose topics have been migrated does not serve them again.
func startsNoMore(t *testing.T, source *server) {
	t.Helper()
	source.launch()
	if err := source.cmd.Wait(); err == nil || !strings.Contains(source.log.String(), "topics have moved to the cluster") {
		t.Errorf("the server that was moved starts again: %v", err)
	}
}

// A producer and a group that know only one server continue when its topics are migrated to a
// cluster: no acknowledged record is lost, doubled or out of order, the group processes everything,
// and the server does not serve again.
func TestTopicsMoveWhileTheyAreUsed(t *testing.T) {
	t.Parallel()
	source := newServer(t)
	source.env = []string{moveSecret}
	source.start()
	admin := kadm.NewClient(source.connect())
	if _, err := admin.CreateTopic(t.Context(), smokePartitions, 1, nil, smokeTopic); err != nil {
		t.Fatal(err)
	}
	load := startSmokeLoad(t, &nodes{t: t, all: []*server{source}})
	cluster := startNodes(t, 3)
	cluster.settle(cluster.all[0], 3)

	only := []string{"--topics", smokeTopic}
	shown := cluster.migrate(source.url(""), append(only, "--dry-run")...)
	if shown.Topics != 1 || shown.Partitions != smokePartitions || shown.Groups != 1 || shown.Replicas != 3 || shown.Records == 0 {
		t.Errorf("a dry run shows %+v", shown)
	}
	load.during("the topics move", func() {
		shown = cluster.migrate(source.url(""), only...)
		load.awaitAll()
	})
	t.Logf("the pause of the migration: %d ms", shown.PauseMS)
	if shown = cluster.migrate(source.url(""), only...); !shown.MovedBefore {
		t.Errorf("the same again: %+v", shown)
	}
	load.during("the server is gone", func() {
		source.kill()
		load.awaitAll()
	})
	startsNoMore(t, source)
	cluster.moveStopped(t)
	load.finish(cluster.all[0])
}

// moveStopped migrates the topics of a stopped server, after a migration was given up.
func (c *nodes) moveStopped(t *testing.T) {
	t.Helper()
	const name, records = "of-the-stopped", 500
	source := startServer(t)
	source.newTopic(name, 2)
	producer := source.connect()
	for n := range records {
		record := &kgo.Record{Topic: name, Partition: int32(n % 2), Value: fmt.Append(nil, n/2)}
		producer.Produce(t.Context(), record, func(_ *kgo.Record, err error) {
			if err != nil {
				t.Error(err)
			}
		})
	}
	if err := producer.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
	source.signal(syscall.SIGTERM)
	if err := source.cmd.Wait(); err != nil {
		t.Fatal(err)
	}
	if shown := c.migrate(source.data, "--topics", name, "--abort"); !shown.Aborted {
		t.Errorf("a move that is given up: %+v", shown)
	}
	if shown := c.migrate(source.data, "--topics", name); shown.Topics != 1 || shown.Records != records {
		t.Errorf("the move of a stopped server: %+v", shown)
	}
	startsNoMore(t, source)
	next := map[int32]int{}
	c.all[2].readTopic(name, until.Limit, func(r *kgo.Record) {
		if got := string(r.Value); got != fmt.Sprint(next[r.Partition]) {
			t.Errorf("partition %d, offset %d: %s, want %d", r.Partition, r.Offset, got, next[r.Partition])
		}
		next[r.Partition]++
	})
	if next[0]+next[1] != records {
		t.Errorf("there are %v records, want %d", next, records)
	}
}
