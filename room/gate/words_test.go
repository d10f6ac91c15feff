package gate

import (
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

var korean = builtInWords[1]

func TestWait(t *testing.T) {
	for _, test := range []struct {
		low, high       time.Duration
		english, korean string
	}{
		{0, 0, "less than a minute", "1분 미만"},
		{0, 59 * time.Second, "less than a minute", "1분 미만"},
		{0, time.Minute, "up to a minute", "최대 1분"},
		{30 * time.Second, 150 * time.Second, "up to 3 minutes", "최대 3분"},
		{time.Minute, time.Minute, "about a minute", "약 1분"},
		{2 * time.Minute, 2 * time.Minute, "about 2 minutes", "약 2분"},
		{200 * time.Second, 290 * time.Second, "about 3–5 minutes", "약 3~5분"},
		{time.Minute, 2 * time.Hour, "about 1–120 minutes", "약 1~120분"},
		{0, 3 * time.Hour, "up to 3 hours", "최대 3시간"},
		{30 * time.Minute, 150 * time.Minute, "about 30 minutes to 3 hours", "약 30분~3시간"},
		{2 * time.Hour, 150 * time.Minute, "about 2–3 hours", "약 2~3시간"},
		{3 * time.Hour, 3 * time.Hour, "about 3 hours", "약 3시간"},
		{1_000 * time.Hour, 1_200 * time.Hour, "about 1,000–1,200 hours", "약 1,000~1,200시간"},
	} {
		wait := &engine.Wait{Low: test.low, High: test.high}
		if got := english.wait(wait); got != test.english {
			t.Errorf("%v to %v: %q; want %q", test.low, test.high, got, test.english)
		}
		if got := korean.wait(wait); got != test.korean {
			t.Errorf("%v to %v: %q; want %q", test.low, test.high, got, test.korean)
		}
	}
	if english.wait(nil) != "not known yet" || korean.wait(nil) != "아직 알 수 없습니다" {
		t.Error("what is unknown is not said as unknown")
	}
}

// The range shown contains every estimate.
func TestWaitIsWhole(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		low := time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "low"))
		high := low + time.Duration(rapid.Int64Range(0, int64(100*time.Hour)).Draw(t, "more"))
		for _, w := range builtInWords {
			if got := w.wait(&engine.Wait{Low: low, High: high}); got == "" || strings.ContainsAny(got, "{}") || strings.Contains(got, "–0") {
				t.Fatalf("%v to %v: %q", low, high, got)
			}
		}
	})
}

func TestAhead(t *testing.T) {
	for ahead, want := range map[int64][2]string{
		0:         {"You are next.", "바로 다음 차례입니다."},
		1:         {"1 person is ahead of you.", "앞에 1명이 기다리고 있습니다."},
		2:         {"2 people are ahead of you.", "앞에 2명이 기다리고 있습니다."},
		1_234_567: {"1,234,567 people are ahead of you.", "앞에 1,234,567명이 기다리고 있습니다."},
	} {
		if got := [2]string{english.ahead(ahead), korean.ahead(ahead)}; got != want {
			t.Errorf("%d: %q; want %q", ahead, got, want)
		}
	}
}

func TestNumber(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 12: "12", 123: "123", 1_234: "1,234", 123_456: "123,456", 1_234_567: "1,234,567"} {
		if got := english.number(n); got != want {
			t.Errorf("%d: %q; want %q", n, got, want)
		}
	}
}

// No text of a built-in language is empty.
func TestEveryLanguageSaysEverything(t *testing.T) {
	for _, w := range builtInWords {
		value := reflect.ValueOf(*w)
		for i := range value.NumField() {
			if field := value.Type().Field(i); field.Name != "PlaceSuffix" && value.Field(i).IsZero() {
				t.Errorf("%s: %s is empty", w.Lang, field.Name)
			}
		}
		for _, page := range samples(w) {
			if page.Title == "" || page.Heading == "" || (page.Message == "" && page.Kind != KindGone) {
				t.Errorf("%s: %s says nothing", w.Lang, page.Kind)
			}
		}
		for _, reason := range []room.Reason{room.Left, room.Expired, room.Abandoned, room.Revoked, room.Ended, room.SoldOut, room.Forgotten} {
			if w.Gone[reason] == "" {
				t.Errorf("%s: nothing for %s", w.Lang, reason)
			}
		}
		if len(w.Pages) != len(english.Pages) {
			t.Errorf("%s: %d pages; English has %d", w.Lang, len(w.Pages), len(english.Pages))
		}
	}
}

func TestProgressNeverLies(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Int64Range(0, 2_000_000).Draw(t, "start")
		position := rapid.Int64Range(1, 2_000_000).Draw(t, "position")
		page := english.page(KindWaiting)
		page.setLine(&engine.Answer{Position: position}, start)
		if p := page.Line.Percent; p < 0 || p > 99 || page.Line.Start < position {
			t.Fatalf("from %d to %d: %d %%", start, position, p)
		}
	})
}
