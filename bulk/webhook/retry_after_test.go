package webhook

import (
	"net/http"
	"testing"
	"time"
)

func TestParseRetryAfter(t *testing.T) {
	now := time.Date(2026, 3, 1, 12, 0, 0, 500_000_000, time.UTC)
	in := func(d time.Duration) string { return now.Add(d).Format(http.TimeFormat) }
	for _, test := range []struct {
		value string
		want  time.Duration
		ok    bool
	}{
		{"0", 0, true},
		{"7", 7 * time.Second, true},
		{" 120 ", 2 * time.Minute, true},
		{"007", 7 * time.Second, true},
		{"86400", MaxRetryAfter, true},
		{"86401", MaxRetryAfter, true},
		{"9999999999", MaxRetryAfter, true},
		{"99999999999999999999999999", MaxRetryAfter, true},
		{in(10 * time.Second), 9500 * time.Millisecond, true},
		{in(-time.Hour), 0, true},
		{in(100 * 24 * time.Hour), MaxRetryAfter, true},
		{"Sunday, 01-Mar-26 12:00:10 GMT", 9500 * time.Millisecond, true},
		{"Sun Mar  1 12:00:10 2026", 9500 * time.Millisecond, true},
		{"", 0, false},
		{" ", 0, false},
		{"-1", 0, false},
		{"+1", 0, false},
		{"1.5", 0, false},
		{"5s", 0, false},
		{"soon", 0, false},
		{"2026-03-01T12:00:10Z", 0, false},
	} {
		t.Run(test.value, func(t *testing.T) {
			got, ok := parseRetryAfter(test.value, now)
			if got != test.want || ok != test.ok {
				t.Fatalf("parseRetryAfter(%q) = %s, %t; want %s, %t", test.value, got, ok, test.want, test.ok)
			}
		})
	}
}

func FuzzParseRetryAfter(f *testing.F) {
	for _, seed := range []string{"", "0", "120", "-1", "99999999999999999999", "Sun, 01 Mar 2026 12:00:10 GMT", "Sun, 31 Dec 9999 23:59:59 GMT"} {
		f.Add(seed, int64(1_700_000_000))
	}
	f.Fuzz(func(t *testing.T, value string, now int64) {
		after, ok := parseRetryAfter(value, time.Unix(now, 0))
		if after < 0 || after > MaxRetryAfter || (!ok && after != 0) {
			t.Fatalf("parseRetryAfter(%q) = %s, %t", value, after, ok)
		}
	})
}
