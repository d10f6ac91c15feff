package webhook

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

func TestResults(t *testing.T) {
	for _, test := range []struct {
		name   string
		status int
		body   string
		want   string
	}{
		{"object", 200, `{"latitude":"40.922326"}`, `{"latitude":"40.922326"}`},
		{"number", 201, `1.50`, `1.50`},
		{"space around", 200, " [1]\n", `[1]`},
		{"accepted", 202, `{}`, `{}`},
		{"empty", 200, ``, ``},
		{"no content", 204, ``, ``},
		{"not JSON", 200, `OK`, ``},
		{"half of JSON", 200, `{"a":`, ``},
		{"two values", 200, `1 2`, ``},
		{"other 2xx", 299, `true`, `true`},
		{"as long as allowed", 200, `"` + strings.Repeat("a", 1022) + `"`, `"` + strings.Repeat("a", 1022) + `"`},
		{"too long", 200, `"` + strings.Repeat("a", 1023) + `"`, ``},
		{"too long, but JSON up to there", 200, `1` + strings.Repeat(" ", 1023) + `2`, ``},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := attempt(t, func(w http.ResponseWriter, _ *http.Request) {
				w.WriteHeader(test.status)
				_, _ = io.WriteString(w, test.body)
			})
			if err != nil || string(got) != test.want || (got == nil) != (test.want == "") {
				t.Fatalf("Handle = %q, %v; want %q", got, err, test.want)
			}
		})
	}
}

// kind is what a handler's error means to the engine.
type kind string

const (
	transientKind kind = "transient"
	finalKind     kind = "final"
	throttledKind kind = "throttled"
)

func kindOf(err error) (kind, time.Duration) {
	var throttled *bulk.ThrottledError
	var retryAfter *bulk.RetryAfterError
	switch {
	case errors.As(err, &throttled):
		return throttledKind, throttled.RetryAfter
	case errors.Is(err, bulk.SkipRetry):
		return finalKind, 0
	case errors.As(err, &retryAfter):
		return transientKind, retryAfter.After
	}
	return transientKind, 0
}

var refusals = []struct {
	status     int
	retryAfter string
	want       kind
	after      time.Duration
}{
	{300, "", finalKind, 0},
	{304, "", finalKind, 0},
	{307, "", finalKind, 0},
	{400, "", finalKind, 0},
	{401, "", finalKind, 0},
	{404, "9", finalKind, 0},
	{408, "", transientKind, 0},
	{408, "9", transientKind, 9 * time.Second},
	{409, "", finalKind, 0},
	{410, "", finalKind, 0},
	{413, "", finalKind, 0},
	{422, "", finalKind, 0},
	{425, "", transientKind, 0},
	{425, "9", transientKind, 9 * time.Second},
	{429, "", throttledKind, 0},
	{429, "9", throttledKind, 9 * time.Second},
	{429, "Sun, 06 Nov 1994 08:49:37 GMT", throttledKind, 0},
	{429, "Sun, 06 Nov 2094 08:49:37 GMT", throttledKind, MaxRetryAfter},
	{429, "nonsense", throttledKind, 0},
	{451, "", finalKind, 0},
	{500, "", transientKind, 0},
	{500, "9", transientKind, 9 * time.Second},
	{500, "nonsense", transientKind, 0},
	{501, "", transientKind, 0},
	{502, "", transientKind, 0},
	{503, "", throttledKind, 0},
	{503, "9", throttledKind, 9 * time.Second},
	{504, "", transientKind, 0},
	{599, "", transientKind, 0},
	{600, "", transientKind, 0},
	{999, "", transientKind, 0},
}

func TestCosts(t *testing.T) {
	for text, want := range map[string]int64{"": 0, "12": 12, "0": 0, "-1": 0, "1.5": 0, "many": 0, "999999999": bulk.MaxCost} {
		for _, status := range []int{200, 500} {
			server := newServer(t, func(w http.ResponseWriter, _ *http.Request) {
				w.Header().Set("Sluice-Cost", text)
				w.WriteHeader(status)
			})
			job := jobTo(server.URL)
			if _, err := newHandler(t, Options{}).Handle(t.Context(), job); (err == nil) != (status == 200) {
				t.Fatal(err)
			}
			if job.Cost != want {
				t.Errorf("%d, Sluice-Cost %q: the cost is %d, want %d", status, text, job.Cost, want)
			}
		}
	}
}

func TestRefusals(t *testing.T) {
	for _, test := range refusals {
		t.Run(fmt.Sprintf("%d %s", test.status, test.retryAfter), func(t *testing.T) {
			result, err := attempt(t, func(w http.ResponseWriter, _ *http.Request) {
				if test.retryAfter != "" {
					w.Header().Set("Retry-After", test.retryAfter)
				}
				w.WriteHeader(test.status)
				if test.status != 304 {
					_, _ = io.WriteString(w, "no such\nthing\x00 "+strings.Repeat("ü", 300))
				}
			})
			if result != nil || err == nil {
				t.Fatalf("Handle = %q, %v", result, err)
			}
			if got, after := kindOf(err); got != test.want || after != test.after {
				t.Errorf("%v is %s after %s; want %s after %s", err, got, after, test.want, test.after)
			}
			if text := err.Error(); !strings.Contains(text, strconv.Itoa(test.status)) || len(text) > 400 ||
				(test.status >= 400 && !strings.Contains(text, "no such thing\uFFFD üü")) {
				t.Errorf("text = %q", text)
			}
			if cause := bulk.Cause(err.Error()); cause != strconv.Itoa(test.status) {
				t.Errorf("%v has the cause %q", err, cause)
			}
			var status *StatusError
			if test.want != throttledKind && (!errors.As(err, &status) || status.Status != test.status) {
				t.Errorf("%#v: want a *StatusError of %d", err, test.status)
			}
		})
	}
}

func TestRedirectIsNotFollowed(t *testing.T) {
	var requests atomic.Int32
	_, err := attempt(t, func(w http.ResponseWriter, r *http.Request) {
		requests.Add(1)
		w.Header().Set("Location", "https://user:pass@new.example/hook\xff%zz?token=secret")
		w.WriteHeader(http.StatusPermanentRedirect)
	})
	if got, _ := kindOf(err); got != finalKind || requests.Load() != 1 {
		t.Fatalf("%d requests, %v", requests.Load(), err)
	}
	if want := "308 Permanent Redirect, which points to https://xxxxx@new.example/hook\uFFFD%zz?token=xxxxx: "; !strings.Contains(err.Error(), want) {
		t.Fatalf("%v; want %q in it", err, want)
	}
}

func TestExcerpt(t *testing.T) {
	for _, test := range []struct{ body, want string }{
		{"", ""},
		{" \n ", ""},
		{" a \r\n\t b ", "a b"},
		{"\x1b[31mred\x00", "\uFFFD[31mred\uFFFD"},
		{"\xff\xfe", "\uFFFD\uFFFD"},
		{strings.Repeat("a", 196), strings.Repeat("a", 196)},
		{strings.Repeat("a", 300), strings.Repeat("a", 196) + "…"},
	} {
		if got := excerpt([]byte(test.body)); got != test.want {
			t.Errorf("excerpt(%q) = %q; want %q", test.body, got, test.want)
		}
	}
}
