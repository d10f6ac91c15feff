package e2e

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os/exec"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/testkit/until"
)

// fill creates a topic and produces count records, from number from on.
func fill(t *testing.T, brokers, name string, from, count int) {
	t.Helper()
	client, err := kgo.NewClient(kgo.SeedBrokers(brokers), kgo.DefaultProduceTopic(name), kgo.UnknownTopicRetries(-1))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	if from == 0 {
		if _, err := kadm.NewClient(client).CreateTopic(t.Context(), 3, 1, nil, name); err != nil {
			t.Fatal(err)
		}
	}
	var records []*kgo.Record
	for n := from; n < from+count; n++ {
		records = append(records, &kgo.Record{Key: fmt.Appendf(nil, "tenant-%d", n%17), Value: fmt.Appendf(nil, `{"n":%d}`, n)})
	}
	if err := client.ProduceSync(t.Context(), records...).FirstErr(); err != nil {
		t.Fatal(err)
	}
}

// result is the output of "bulk run --json".
type result struct {
	Jobs, Succeeded int
	Aggregates      map[string]json.RawMessage
}

// runKilled runs a command and kills it a number of times at random moments, while records keep
// coming. It returns the output of the last run.
func runKilled(t *testing.T, kills int, more func(), args ...string) (r result) {
	t.Helper()
	for kill := 0; ; kill++ {
		var out, stderr bytes.Buffer
		command := exec.Command(binary, args...)
		command.Stdout, command.Stderr = &out, &stderr
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		if kill < kills {
			timer := time.AfterFunc(30*time.Millisecond+rand.N(900*time.Millisecond), func() { _ = command.Process.Kill() })
			err := command.Wait()
			timer.Stop()
			if err != nil && command.ProcessState.ExitCode() < 0 {
				more()
				continue
			}
		} else if err := command.Wait(); err != nil {
			t.Fatalf("%v: %s", err, stderr.Bytes())
		}
		if err := json.Unmarshal(out.Bytes(), &r); err != nil {
			t.Fatalf("%v: %s%s", err, out.Bytes(), stderr.Bytes())
		}
		return r
	}
}

// A command that takes a topic's records as jobs is killed repeatedly, while more records come.
// Each record becomes one job: over all runs the target sees as many jobs as there are records, and
// the reported counts add up.
func TestFromTopicSurvivesKills(t *testing.T) {
	t.Parallel()
	kills, records := 5, 4000
	if long() {
		kills, records = 25, 16_000
	}
	s, target := newServer(t), newRecorder(t)
	s.start()
	produced := records
	fill(t, s.kafka, "orders", 0, records)
	more := func() {
		fill(t, s.kafka, "orders", produced, 100)
		produced += 100
	}
	args := []string{
		"bulk", "run", "--from-topic", "orders", "--group", "billing", "--data", t.TempDir(), "--brokers", s.kafka,
		"--tenant-key", "--url", target.URL, "--workers", "50", "--rps", "4000", "--aggregate", "count", "--aggregate", "sum:n", "--json",
	}
	first := runKilled(t, kills, more, args...)
	if sum := first.Jobs * (first.Jobs - 1) / 2; string(first.Aggregates["sum:n"]) != fmt.Sprintf(`"%d"`, sum) {
		t.Errorf("the sum over the first %d records is %s, want %d", first.Jobs, first.Aggregates["sum:n"], sum)
	}
	more()
	second := runKilled(t, 0, nil, args...)
	third := runKilled(t, 0, nil, args...)
	if first.Succeeded+second.Succeeded != produced || third.Jobs != 0 {
		t.Errorf("of %d records, %d and then %d and %d were taken", produced, first.Succeeded, second.Succeeded, third.Jobs)
	}
	if len(target.seen) != produced {
		t.Errorf("the target has seen %d jobs of %d records", len(target.seen), produced)
	}
	t.Logf("%d records; the interrupted run took %d of them; %d requests", produced, first.Jobs, target.calls)
}

// The same for jobs that are submitted to a server, which is killed as well.
func TestSubmitFromTopicSurvivesKills(t *testing.T) {
	t.Parallel()
	kills, records := 5, 4000
	if long() {
		kills, records = 25, 16_000
	}
	s, target := newServer(t), newRecorder(t)
	s.start()
	fill(t, s.kafka, "orders", 0, records)
	args := []string{
		"bulk", "submit", "--from-topic", "orders", "--group", "billing", "--brokers", s.kafka, "--server", "http://" + s.addr,
		"--tenant-key", "--url", target.URL,
	}
	for kill := range kills {
		command := exec.Command(binary, args...)
		if err := command.Start(); err != nil {
			t.Fatal(err)
		}
		<-time.After(20*time.Millisecond + rand.N(300*time.Millisecond))
		if kill%2 == 1 {
			s.kill()
			s.start()
		}
		_ = command.Process.Kill()
		_ = command.Wait()
	}
	until.True(t, "the upload ends", func() bool { return exec.Command(binary, args...).Run() == nil })
	until.True(t, "all jobs have run", func() bool {
		target.mu.Lock()
		defer target.mu.Unlock()
		return len(target.seen) >= records
	})
	var all struct{ Actions []action }
	s.call("GET", "/v1/actions?limit=500", "", 200, &all)
	received := int64(0)
	for _, a := range all.Actions {
		received += a.Received
	}
	if received != int64(records) || len(all.Actions) != 17 {
		t.Errorf("%d jobs in %d actions of %d records of 17 tenants", received, len(all.Actions), records)
	}
}
