package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

var elapsed = regexp.MustCompile(`"elapsed_ms":[0-9]+,"jain":[^}]+`)

// takes runs a command line on a session's server; what it prints is in its log,
// but for what is not the same each time.
func (s *session) takes(line, data string) {
	s.t.Helper()
	code, stdout, stderr := s.on(s.t.Context(), "", append(words(line), "--data", data)...)
	stdout = elapsed.ReplaceAllString(stdout, `"elapsed_ms":9`)
	fmt.Fprintf(&s.log, "$ sluice %s --data kept\n%s", line, stdout)
	if stderr != "" {
		fmt.Fprintf(&s.log, "# standard error\n%s", stderr)
	}
	if code != 0 {
		fmt.Fprintf(&s.log, "# code %d\n", code)
	}
	s.log.WriteString("\n")
}

// A group takes each record once, whatever is asked of it in between.
func TestBulkRunFromTopicGolden(t *testing.T) {
	s := newSession(t)
	kept := t.TempDir()
	s.run("topic create orders --partitions 2")
	var lines strings.Builder
	for n := range 300 {
		fmt.Fprintf(&lines, "{\"key\":\"shop %d\",\"value\":{\"n\":%d},\"partition\":%d,\"headers\":{\"of\":[\"x\",\"team %d\"]}}\n", n%3, n, n%2, n%2)
	}
	s.feed(lines.String(), "topic produce orders --json")
	const run = "bulk run --from-topic orders --type echo --aggregate count --aggregate sum:n --json"
	s.takes(run+" --group billing --tenant-key --until 100", kept)
	s.takes(run+" --group billing --tenant-key", kept)
	s.takes(run+" --group billing --tenant-key", kept)
	s.run("group describe billing")
	s.takes(run+" --tenant-header of", t.TempDir())
	s.takes(run+" --tenant-field n --until 10", t.TempDir())

	s.feed("{\"key\":\"shop 0\",\"value\":{\"n\":300},\"partition\":0}\n"+
		"{\"key\":\"shop 0\",\"value\":\"{\\\"n\\\":\",\"partition\":1}\n"+
		"{\"key\":\"\",\"value\":{\"n\":301},\"partition\":1}\n"+
		"{\"key\":\"shop 1\",\"value\":null,\"partition\":1}\n"+
		"{\"key\":\"shop 2\",\"value\":{\"n\":302},\"partition\":1}\n", "topic produce orders --json")
	s.takes(run+" --group billing --tenant-key", kept)
	s.takes(run+" --group billing --tenant-field n", kept)
	s.takes(run+" --group billing --tenant-key --skip-bad", kept)
	s.run("group describe billing")

	s.run("bulk run --from-topic nothing --type echo --tenant-key")
	s.run("bulk run orders.csv --from-topic orders --type echo --tenant-key")
	s.run("bulk run --from-topic orders --type echo")
	s.run("bulk run --from-topic orders --type echo --tenant-key --tenant-header of")
	s.run("bulk run --from-topic orders --type echo --tenant-column of")
	s.run("bulk run --from-topic orders --type echo --tenant-key --until start")
	s.run("bulk run orders.csv --tenant-column of --type echo --group billing")
	golden(t, "from-topic", s.log.String())
}

// A view takes what passes it, though its last records are hidden.
func TestBulkRunFromView(t *testing.T) {
	s := newSession(t)
	s.run("topic create orders")
	s.run("topic create paid --view-of orders --where 'headers.tag == \"paid\"'")
	var lines strings.Builder
	for n := range 500 {
		tag := "open"
		if n%50 == 7 {
			tag = "paid"
		}
		fmt.Fprintf(&lines, "{\"key\":\"a\",\"value\":{\"n\":%d},\"headers\":{\"tag\":%q}}\n", n, tag)
	}
	s.feed(lines.String(), "topic produce orders --json")
	for _, want := range []int64{10, 0} {
		code, stdout, stderr := s.on(t.Context(), "", words("bulk run --from-topic paid --group g --type echo --tenant-key --json")...)
		var result runResult
		if err := json.Unmarshal([]byte(stdout), &result); err != nil || code != 0 || result.Jobs != want {
			t.Errorf("code %d, %v: %s%s; want %d jobs", code, err, stdout, stderr, want)
		}
	}
}

// What was removed before the group had taken it is told, and left out only if
// that is asked for.
func TestBulkRunFromTopicTellsWhatWasRemoved(t *testing.T) {
	s := newSession(t)
	s.run("topic create orders")
	produce := func(n int) {
		for range n {
			s.feed("a:{\"n\":1}\n", "topic produce orders --key-separator :")
		}
	}
	produce(2)
	const run = "bulk run --from-topic orders --group g --type echo --tenant-key --json"
	if code, stdout, stderr := s.on(t.Context(), "", words(run)...); code != 0 || !strings.Contains(stdout, `"jobs":2`) {
		t.Fatalf("code %d: %s%s", code, stdout, stderr)
	}
	produce(3)
	client, err := kgo.NewClient(kgo.SeedBrokers(s.brokers))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	before := kadm.Offsets{}
	before.AddOffset("orders", 0, 4, -1)
	if _, err := kadm.NewClient(client).DeleteRecords(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := s.on(t.Context(), "", words(run)...); code != 1 ||
		!strings.Contains(stderr, `partition 0: the records from offset 2 to 3 were removed before group "g" had taken them`) {
		t.Errorf("code %d: %s", code, stderr)
	}
	if code, stdout, stderr := s.on(t.Context(), "", words(run+" --skip-bad")...); code != 0 || !strings.Contains(stdout, `"jobs":1`) {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
}

// Nobody else takes from a group that has a member.
func TestBulkRunFromTopicAwaitsOthers(t *testing.T) {
	s := newSession(t)
	s.run("topic create orders")
	s.feed("a:{\"n\":1}\n", "topic produce orders --key-separator :")
	other, err := kgo.NewClient(kgo.SeedBrokers(s.brokers), kgo.ClientID("other"), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.PollFetches(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), memberPatience/10)
	defer cancel()
	args := words("bulk run --from-topic orders --group g --type echo --tenant-key")
	if code, stdout, stderr := s.on(ctx, "", args...); code == 0 || !strings.Contains(stderr, "waiting for the other member of group g to leave, other at 127.0.0.1") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
	other.Close()
	if code, stdout, stderr := s.on(t.Context(), "", args...); code != 0 || !strings.Contains(stdout, "1 job: 1 succeeded") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
}
