package bulk_test

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/cli/bulk"
	"github.com/sluice-project/sluice/internal/cli/bulk/report"
	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/group"
	"github.com/sluice-project/sluice/internal/cli/topic"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

var elapsed = regexp.MustCompile(`"elapsed_ms":[0-9]+,"jain":[^}]+`)

// takes runs a command line on a session's server and logs its output, without the parts that
// differ from run to run.
func takes(s *clitest.Session, line, data string) {
	s.T.Helper()
	code, stdout, stderr := s.On(s.T.Context(), "", append(clitest.Words(line), "--data", data)...)
	stdout = elapsed.ReplaceAllString(stdout, `"elapsed_ms":9`)
	fmt.Fprintf(&s.Log, "$ sluice %s --data kept\n%s", line, stdout)
	if stderr != "" {
		fmt.Fprintf(&s.Log, "# standard error\n%s", stderr)
	}
	if code != 0 {
		fmt.Fprintf(&s.Log, "# code %d\n", code)
	}
	s.Log.WriteString("\n")
}

// A group takes each record once, even if other commands ask about it in between.
func TestBulkRunFromTopicGolden(t *testing.T) {
	s := clitest.NewSession(t, topic.Command, group.Command, bulk.Command)
	kept := t.TempDir()
	s.Run("topic create orders --partitions 2")
	var lines strings.Builder
	for n := range 300 {
		fmt.Fprintf(&lines, "{\"key\":\"shop %d\",\"value\":{\"n\":%d},\"partition\":%d,\"headers\":{\"of\":[\"x\",\"team %d\"]}}\n", n%3, n, n%2, n%2)
	}
	s.Feed(lines.String(), "topic produce orders --json")
	const run = "bulk run --from-topic orders --type echo --aggregate count --aggregate sum:n --json"
	takes(s, run+" --group billing --tenant-key --until 100", kept)
	takes(s, run+" --group billing --tenant-key", kept)
	takes(s, run+" --group billing --tenant-key", kept)
	s.Run("group describe billing")
	takes(s, run+" --tenant-header of", t.TempDir())
	takes(s, run+" --tenant-field n --until 10", t.TempDir())

	s.Feed("{\"key\":\"shop 0\",\"value\":{\"n\":300},\"partition\":0}\n"+
		"{\"key\":\"shop 0\",\"value\":\"{\\\"n\\\":\",\"partition\":1}\n"+
		"{\"key\":\"\",\"value\":{\"n\":301},\"partition\":1}\n"+
		"{\"key\":\"shop 1\",\"value\":null,\"partition\":1}\n"+
		"{\"key\":\"shop 2\",\"value\":{\"n\":302},\"partition\":1}\n", "topic produce orders --json")
	takes(s, run+" --group billing --tenant-key", kept)
	takes(s, run+" --group billing --tenant-field n", kept)
	takes(s, run+" --group billing --tenant-key --skip-bad", kept)
	s.Run("group describe billing")

	s.Run("bulk run --from-topic nothing --type echo --tenant-key")
	s.Run("bulk run orders.csv --from-topic orders --type echo --tenant-key")
	s.Run("bulk run --from-topic orders --type echo")
	s.Run("bulk run --from-topic orders --type echo --tenant-key --tenant-header of")
	s.Run("bulk run --from-topic orders --type echo --tenant-column of")
	s.Run("bulk run --from-topic orders --type echo --tenant-key --until start")
	s.Run("bulk run orders.csv --tenant-column of --type echo --group billing")
	clitest.Golden(t, "from-topic", s.Log.String())
}

// A view takes the records that match it, even if the last records are hidden.
func TestBulkRunFromView(t *testing.T) {
	s := clitest.NewSession(t, topic.Command, group.Command, bulk.Command)
	s.Run("topic create orders")
	s.Run("topic create paid --view-of orders --where 'headers.tag == \"paid\"'")
	var lines strings.Builder
	for n := range 500 {
		tag := "open"
		if n%50 == 7 {
			tag = "paid"
		}
		fmt.Fprintf(&lines, "{\"key\":\"a\",\"value\":{\"n\":%d},\"headers\":{\"tag\":%q}}\n", n, tag)
	}
	s.Feed(lines.String(), "topic produce orders --json")
	for _, want := range []int64{10, 0} {
		code, stdout, stderr := s.On(t.Context(), "", clitest.Words("bulk run --from-topic paid --group g --type echo --tenant-key --json")...)
		var result report.Result
		if err := json.Unmarshal([]byte(stdout), &result); err != nil || code != 0 || result.Jobs != want {
			t.Errorf("code %d, %v: %s%s; want %d jobs", code, err, stdout, stderr, want)
		}
	}
}

// Records that were removed before the group took them are reported, and left out only with the
// flag for it.
func TestBulkRunFromTopicTellsWhatWasRemoved(t *testing.T) {
	s := clitest.NewSession(t, topic.Command, group.Command, bulk.Command)
	s.Run("topic create orders")
	produce := func(n int) {
		for range n {
			s.Feed("a:{\"n\":1}\n", "topic produce orders --key-separator :")
		}
	}
	produce(2)
	const run = "bulk run --from-topic orders --group g --type echo --tenant-key --json"
	if code, stdout, stderr := s.On(t.Context(), "", clitest.Words(run)...); code != 0 || !strings.Contains(stdout, `"jobs":2`) {
		t.Fatalf("code %d: %s%s", code, stdout, stderr)
	}
	produce(3)
	client, err := kgo.NewClient(kgo.SeedBrokers(s.Brokers))
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	before := kadm.Offsets{}
	before.AddOffset("orders", 0, 4, -1)
	if _, err := kadm.NewClient(client).DeleteRecords(t.Context(), before); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := s.On(t.Context(), "", clitest.Words(run)...); code != 1 ||
		!strings.Contains(stderr, `partition 0: the records from offset 2 to 3 were removed before group "g" had taken them`) {
		t.Errorf("code %d: %s", code, stderr)
	}
	if code, stdout, stderr := s.On(t.Context(), "", clitest.Words(run+" --skip-bad")...); code != 0 || !strings.Contains(stdout, `"jobs":1`) {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
}

// No other member takes records from a group that has a member.
func TestBulkRunFromTopicAwaitsOthers(t *testing.T) {
	s := clitest.NewSession(t, topic.Command, group.Command, bulk.Command)
	s.Run("topic create orders")
	s.Feed("a:{\"n\":1}\n", "topic produce orders --key-separator :")
	other, err := kgo.NewClient(kgo.SeedBrokers(s.Brokers), kgo.ClientID("other"), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"), kgo.DisableAutoCommit())
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	if err := other.PollFetches(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	args := clitest.Words("bulk run --from-topic orders --group g --type echo --tenant-key")
	var code int
	var stdout, stderr string
	for within := 2 * time.Second; ; within *= 2 { // a busy machine may need longer to see the other
		ctx, cancel := context.WithTimeout(t.Context(), within)
		code, stdout, stderr = s.On(ctx, "", args...)
		cancel()
		if strings.Contains(stderr, "waiting for") || within > until.Limit {
			break
		}
	}
	if code == 0 || !strings.Contains(stderr, "waiting for the other member of group g to leave, other at 127.0.0.1") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
	other.Close()
	if code, stdout, stderr := s.On(t.Context(), "", args...); code != 0 || !strings.Contains(stdout, "1 job: 1 succeeded") {
		t.Errorf("code %d: %s%s", code, stdout, stderr)
	}
}
