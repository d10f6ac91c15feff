package group_test

import (
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/group"
	"github.com/sluice-project/sluice/internal/cli/topic"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// A group whose partitions the server assigns is shown as others are.
func TestGroupOfConsumers(t *testing.T) {
	s := clitest.NewSession(t, topic.Command, group.Command)
	s.Run("topic create orders --partitions 2")
	s.Feed("one\n", "topic produce orders")
	reader, err := kgo.NewClient(kgo.SeedBrokers(s.Brokers), kgo.ClientID("till"), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("orders"),
		kgo.ServerSideBalancer(), kgo.DisableAutoCommit(), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		t.Fatal(err)
	}
	defer reader.Close()
	if fetched := reader.PollFetches(t.Context()); fetched.NumRecords() != 1 {
		t.Fatalf("read %d records, %v", fetched.NumRecords(), fetched.Errors())
	}
	if err := reader.CommitUncommittedOffsets(t.Context()); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		line string
		code int
		want []string
	}{
		{"group list", 0, []string{"Stable", "uniform"}},
		{"group describe g", 0, []string{"Stable", "uniform", "till 127.0.0.1"}},
		{"group describe g --json", 0, []string{`"client":"till"`, `"lag":0`, `"partition":1`}},
		{"group reset g --topic orders --to start", 1, []string{`group "g" is Stable, with 1 member`}},
		{"group delete g", 1, []string{`group "g" has members`}},
	} {
		code, stdout, stderr := s.On(t.Context(), "", strings.Fields(test.line)...)
		for _, want := range test.want {
			if code != test.code || !strings.Contains(strings.ReplaceAll(stdout, `": `, `":`)+stderr, want) {
				t.Errorf("%s: code %d, want %d and %q:\n%s%s", test.line, code, test.code, want, stdout, stderr)
			}
		}
	}
	reader.Close()
	until.True(t, "the group without members can be reset", func() bool {
		code, _, _ := s.On(t.Context(), "", "group", "reset", "g", "--topic", "orders", "--to", "start")
		return code == 0
	})
	if code, _, stderr := s.On(t.Context(), "", "group", "delete", "g"); code != 0 {
		t.Errorf("delete: code %d, %s", code, stderr)
	}
}
