package main

import (
	"context"
	"fmt"
	"math"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/api"
)

// fakeDelays has the delayed records of one topic, reminders, on one node.
type fakeDelays struct {
	api.Broker
	records []topic.DelayedInfo
}

func (*fakeDelays) Topic(string) (*topic.Topic, error) { return nil, nil }

func (f *fakeDelays) Delayed(_ context.Context, name string, limit int) ([]topic.DelayedInfo, error) {
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
	server := httptest.NewServer(api.New(&fakeDelays{records: []topic.DelayedInfo{
		{ID: "call/4711", Partition: 1, DeliverAt: at}, {ID: "b", DeliverAt: at.Add(time.Minute)},
	}}))
	defer server.Close()
	t.Setenv(serverVariable, server.URL)
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
		code, stdout, stderr := sluice(t, append([]string{"topic"}, test.args...)...)
		if code != test.code || stdout != test.out || stderr != test.errors {
			t.Errorf("%v: code %d\n%s%s\nwant %d\n%s%s", test.args, code, stdout, stderr, test.code, test.out, test.errors)
		}
	}
}

func TestParsePlace(t *testing.T) {
	now := time.Date(2026, 11, 28, 8, 0, 0, 0, time.UTC)
	for text, want := range map[string]place{
		"start": {kind: atStart}, "end": {kind: atEnd}, "0": {kind: atOffset}, "42": {kind: atOffset, offset: 42},
		"10m": {kind: atTime, at: now.Add(-10 * time.Minute)}, "2026-11-27T08:00:00Z": {kind: atTime, at: now.Add(-24 * time.Hour)},
	} {
		if got, err := parsePlace(text, now); err != nil || got.kind != want.kind || got.offset != want.offset || !got.at.Equal(want.at) {
			t.Errorf("%s: %+v, %v; want %+v", text, got, err, want)
		}
	}
	for _, text := range []string{"", "-1", "-10m", "Start", "yesterday", "9223372036854775808"} {
		if got, err := parsePlace(text, now); err == nil {
			t.Errorf("%q is %+v, want an error", text, got)
		}
	}
}

// A shift never leaves what there is, and is exact where it need not stop.
func TestShift(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		has := extent{Start: rapid.Int64Range(0, 1000).Draw(t, "start")}
		has.End = has.Start + rapid.Int64Range(0, 1000).Draw(t, "length")
		from := rapid.Int64Range(0, 3000).Draw(t, "from")
		by := rapid.OneOf(rapid.Int64Range(-2000, 2000), rapid.SampledFrom([]int64{math.MinInt64, math.MaxInt64})).Draw(t, "by")
		got, begin := has.shift(from, by), has.clamp(from)
		if got < has.Start || got > has.End {
			t.Fatalf("%d is outside of %+v", got, has)
		}
		if by > -5000 && by < 5000 && got != has.clamp(begin+by) {
			t.Fatalf("from %d by %d: %d, want %d", from, by, got, has.clamp(begin+by))
		}
	})
}
