package group_test

import (
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/group"
	"github.com/sluice-project/sluice/internal/cli/topic"
	"github.com/sluice-project/sluice/internal/testkit/until"
)

// readShare starts a member of the share group "g" that reads orders.
func readShare(t *testing.T, s *clitest.Session) *kgo.Client {
	t.Helper()
	reader, err := kgo.NewClient(kgo.SeedBrokers(s.Brokers), kgo.ClientID("till"), kgo.ShareGroup("g"), kgo.ConsumeTopics("orders"),
		kgo.FetchMaxWait(50*time.Millisecond))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(reader.Close)
	return reader
}

// A share group is shown as others are, and goes on where it is told to.
func TestShareGroupIsShownAndReset(t *testing.T) {
	s := clitest.NewSession(t, topic.Command, group.Command)
	says := func(line string) (code int, out string) {
		code, stdout, stderr := s.On(t.Context(), "", strings.Fields(line)...)
		return code, strings.ReplaceAll(stdout, `": `, `":`) + stderr
	}
	s.Run("topic create orders")
	reader := readShare(t, s)
	until.True(t, "the group has begun at the end of the topic", func() bool {
		_, out := says("group describe g --json")
		return strings.Contains(out, `"committed":0`)
	})
	s.Feed("one\n", "topic produce orders")
	polled := reader.PollFetches(t.Context())
	polled.EachRecord(func(r *kgo.Record) { r.Ack(kgo.AckAccept) })
	if err := reader.FlushAcks(t.Context()); err != nil || polled.NumRecords() != 1 {
		t.Fatalf("read %d records, %v, %v", polled.NumRecords(), polled.Errors(), err)
	}
	for line, want := range map[string]string{
		"group list":                              "simple",
		"group describe g":                        "Stable",
		"group describe g --json":                 `"committed":1`,
		"group reset g --topic orders --to start": `group "g" is Stable, with 1 member`,
		"group delete g":                          `group "g" has members`,
		"group delete g --topic orders":           `group "g" has members`,
		"group delete none --topic orders":        `there is no share group "none"`,
		"group alter g":                           "say what to change",
		"group alter g --set share.auto.offset.reset=earliest --unset share.delivery.count.limit": "g altered: share.auto.offset.reset=earliest, share.delivery.count.limit has its default",
		"group alter g --set share.delivery.count.limit=500":                                      "from 1 to 100",
		"group alter other --json --set share.delivery.count.limit=9":                             `"share.delivery.count.limit":"9"`,
	} {
		if _, out := says(line); !strings.Contains(out, want) {
			t.Errorf("%s: want %q:\n%s", line, want, out)
		}
	}
	if _, out := says("group describe g"); !strings.Contains(out, "earliest") {
		t.Errorf("the settings of the group are not shown:\n%s", out)
	}
	reader.Close()
	until.True(t, "the group without members is reset", func() bool {
		code, _ := says("group reset g --topic orders --to start")
		return code == 0
	})
	reader = readShare(t, s)
	if polled := reader.PollFetches(t.Context()); polled.NumRecords() != 1 {
		t.Errorf("after the reset %d records, %v", polled.NumRecords(), polled.Errors())
	}
	reader.Close()
	until.True(t, "the group without members forgets the topic", func() bool {
		code, _ := says("group delete g --topic orders")
		return code == 0
	})
	if _, out := says("group delete g --topic orders"); !strings.Contains(out, `group "g" knows nothing of the topic "orders"`) {
		t.Errorf("when it is forgotten: %s", out)
	}
	if _, out := says("group describe g --json"); !strings.Contains(out, `"partitions":[]`) {
		t.Errorf("a group that has forgotten: %s", out)
	}
}
