package topic

import (
	"context"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/internal/cli/clitest"
	"github.com/sluice-project/sluice/internal/cli/profile"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/api"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/delay"
)

// fakeDelays has the delayed records of one topic, reminders, on one node.
type fakeDelays struct {
	api.Broker
	records []delay.Waiting
}

func (*fakeDelays) Topic(string) (*broker.Topic, error) { return nil, nil }

func (f *fakeDelays) Delayed(_ context.Context, name string, limit int) ([]delay.Waiting, error) {
	if name != "reminders" {
		return nil, fmt.Errorf("%w: %q", topic.ErrNoTopic, name)
	}
	return f.records[:min(limit, len(f.records))], nil
}

func (f *fakeDelays) CancelDelayed(_ context.Context, _, id string) error {
	for i, record := range f.records {
		if record.ID == id {
			f.records = append(f.records[:i], f.records[i+1:]...)
			return nil
		}
	}
	return fmt.Errorf("delayed record %q: %w", id, topic.ErrNotFound)
}

func TestDelayedRecords(t *testing.T) {
	at := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	server := httptest.NewServer(api.New(&fakeDelays{records: []delay.Waiting{
		{ID: "call/4711", Partition: 1, DeliverAt: at}, {ID: "b", DeliverAt: at.Add(time.Minute)},
	}}))
	defer server.Close()
	t.Setenv(profile.ServerVariable, server.URL)
	for _, test := range []struct {
		args        []string
		code        int
		out, errors string
	}{
		{[]string{"delayed", "reminders"}, 0, "due                       partition  id\n" + strings.Repeat("─", 46) + "\n2026-11-28T08:00:00.000Z          1  call/4711\n2026-11-28T08:01:00.000Z          0  b\n", ""},
		{[]string{"delayed", "reminders", "--limit", "1", "--json"}, 0, `{"id":"call/4711","partition":1,"deliver_at":"2026-11-28T08:00:00Z"}` + "\n", ""},
		{[]string{"delayed", "reminders", "--limit", "0"}, 2, "", "sluice: --limit: 0: want 1 to 1000\n"},
		{[]string{"delayed", "nosuch"}, 1, "", "sluice: topic does not exist: \"nosuch\"\n"},
		{[]string{"cancel", "reminders", "call/4711"}, 0, "call/4711 canceled in reminders\n", ""},
		{[]string{"cancel", "reminders", "call/4711"}, 1, "", "sluice: delayed record \"call/4711\": not found\n"},
		{[]string{"cancel", "reminders", "b", "--json"}, 0, `{"topic":"reminders","id":"b","canceled":true}` + "\n", ""},
		{[]string{"delayed", "reminders"}, 0, "", "no delayed records\n"},
		{[]string{"delayed", "reminders", "--server", "nowhere"}, 2, "", "sluice: --server: \"nowhere\": want a URL, such as http://127.0.0.1:8080\n"},
	} {
		code, stdout, stderr := clitest.Command(t, Command, append([]string{"topic"}, test.args...)...)
		if code != test.code || stdout != test.out || stderr != test.errors {
			t.Errorf("%v: code %d\n%s%s\nwant %d\n%s%s", test.args, code, stdout, stderr, test.code, test.out, test.errors)
		}
	}
}
