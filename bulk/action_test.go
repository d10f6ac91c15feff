package bulk

import (
	"encoding/json"
	"errors"
	"math"
	"net/url"
	"strings"
	"testing"
	"time"
)

func share64(x float64) *float64 { return &x }

func TestNormalizeFillsIn(t *testing.T) {
	at := time.Date(2030, 1, 2, 3, 4, 5, 6, time.FixedZone("", 3600))
	for name, c := range map[string]struct{ given, want Spec }{
		"a type":                     {Spec{Tenant: "t", Type: "echo"}, Spec{Tenant: "t", Type: "echo"}},
		"all that there is":          {Spec{ID: "A.b_c:d-9", Tenant: "가 나", Type: "email:send", Class: Low, Key: "고객 7", MaxAttempts: 100, Timeout: 24 * time.Hour, FailAbove: share64(1)}, Spec{ID: "A.b_c:d-9", Tenant: "가 나", Type: "email:send", Class: Low, Key: "고객 7", MaxAttempts: 100, Timeout: 24 * time.Hour, FailAbove: share64(1)}},
		"a target of a name":         {Spec{Tenant: "t", Target: &Target{"api", "http://x/y"}}, Spec{Tenant: "t", Type: WebhookType, Target: &Target{"api", "http://x/y"}}},
		"the port of http":           {Spec{Tenant: "t", Target: &Target{"", "http://x/y"}}, Spec{Tenant: "t", Type: WebhookType, Target: &Target{"x:80", "http://x/y"}}},
		"the port of https":          {Spec{Tenant: "t", Target: &Target{"", "https://x"}}, Spec{Tenant: "t", Type: WebhookType, Target: &Target{"x:443", "https://x"}}},
		"a port of its own":          {Spec{Tenant: "t", Target: &Target{"", "https://x:8443/"}}, Spec{Tenant: "t", Type: WebhookType, Target: &Target{"x:8443", "https://x:8443/"}}},
		"an empty port":              {Spec{Tenant: "t", Target: &Target{"", "http://x:/"}}, Spec{Tenant: "t", Type: WebhookType, Target: &Target{"x:80", "http://x:/"}}},
		"an address of IPv6":         {Spec{Tenant: "t", Target: &Target{"", "http://[::1]:80/"}}, Spec{Tenant: "t", Type: WebhookType, Target: &Target{"[::1]:80", "http://[::1]:80/"}}},
		"a host in capitals":         {Spec{Tenant: "t", Target: &Target{"", "HTTP://X.Example/"}}, Spec{Tenant: "t", Type: WebhookType, Target: &Target{"x.example:80", "HTTP://X.Example/"}}},
		"the type webhook is agreed": {Spec{Tenant: "t", Type: WebhookType, Target: &Target{"a", "http://x"}}, Spec{Tenant: "t", Type: WebhookType, Target: &Target{"a", "http://x"}}},
		"a time in UTC":              {Spec{Tenant: "t", Type: "echo", RunAt: at}, Spec{Tenant: "t", Type: "echo", RunAt: at.UTC()}},
	} {
		got, err := c.given.Normalize()
		if err != nil || !got.Equal(c.want) {
			t.Errorf("%s: %+v (target %+v), error %v; want %+v", name, got, got.Target, err, c.want)
		}
		if again, err := got.Normalize(); err != nil || !again.Equal(got) {
			t.Errorf("%s: normalized again %+v, error %v", name, again, err)
		}
		if _, err := json.Marshal(got); err != nil {
			t.Errorf("%s: it cannot be stored: %v", name, err)
		}
	}
}

func TestNormalizeRefuses(t *testing.T) {
	good := Spec{Tenant: "t", Type: "echo"}
	with := func(change func(*Spec)) Spec {
		s := good
		change(&s)
		return s
	}
	target := func(name, url string) Spec { return Spec{Tenant: "t", Target: &Target{name, url}} }
	for name, c := range map[string]struct {
		spec  Spec
		field string
	}{
		"no tenant":                {with(func(s *Spec) { s.Tenant = "" }), "tenant"},
		"a long tenant":            {with(func(s *Spec) { s.Tenant = strings.Repeat("x", 257) }), "tenant"},
		"a line break in a tenant": {with(func(s *Spec) { s.Tenant = "a\nb" }), "tenant"},
		"no type":                  {with(func(s *Spec) { s.Type = "" }), "type"},
		"a space in a type":        {with(func(s *Spec) { s.Type = "a b" }), "type"},
		"a long type":              {with(func(s *Spec) { s.Type = strings.Repeat("x", 129) }), "type"},
		"webhooks to nowhere":      {with(func(s *Spec) { s.Type = WebhookType }), "target"},
		"a type and a target":      {with(func(s *Spec) { s.Target = &Target{"a", "http://x"} }), "type"},
		"a slash in an id":         {with(func(s *Spec) { s.ID = "a/b" }), "id"},
		"an id of one dot":         {with(func(s *Spec) { s.ID = "." }), "id"},
		"an id of two dots":        {with(func(s *Spec) { s.ID = ".." }), "id"},
		"a long id":                {with(func(s *Spec) { s.ID = strings.Repeat("x", 129) }), "id"},
		"a long key":               {with(func(s *Spec) { s.Key = strings.Repeat("k", 257) }), "key"},
		"a key that is no text":    {with(func(s *Spec) { s.Key = "a\tb" }), "key"},
		"no such class":            {with(func(s *Spec) { s.Class = 3 }), "class"},
		"attempts below 0":         {with(func(s *Spec) { s.MaxAttempts = -1 }), "max_attempts"},
		"attempts above 100":       {with(func(s *Spec) { s.MaxAttempts = 101 }), "max_attempts"},
		"a timeout below 0":        {with(func(s *Spec) { s.Timeout = -1 }), "timeout_ms"},
		"a timeout above a day":    {with(func(s *Spec) { s.Timeout = 24*time.Hour + 1 }), "timeout_ms"},
		"a share below 0":          {with(func(s *Spec) { s.FailAbove = share64(-0.1) }), "fail_above"},
		"a share above 1":          {with(func(s *Spec) { s.FailAbove = share64(1.1) }), "fail_above"},
		"a share that is none":     {with(func(s *Spec) { s.FailAbove = share64(math.NaN()) }), "fail_above"},
		"a time beyond RFC 3339":   {with(func(s *Spec) { s.RunAt = time.Date(9999, 12, 31, 23, 0, 0, 0, time.FixedZone("", -7200)) }), "run_at"},
		"a time before it":         {with(func(s *Spec) { s.RunAt = time.Date(-1, 1, 1, 0, 0, 0, 0, time.UTC) }), "run_at"},
		"no URL":                   {target("a", ""), "target.url"},
		"a relative URL":           {target("a", "/x"), "target.url"},
		"another scheme":           {target("a", "ftp://x/"), "target.url"},
		"a URL without a host":     {target("a", "http:///x"), "target.url"},
		"a URL of a port only":     {target("a", "http://:80/x"), "target.url"},
		"a broken URL":             {target("a", "http://x:y/"), "target.url"},
		"a port there is not":      {target("a", "http://x:99999/"), "target.url"},
		"the port 0":               {target("a", "http://x:0/"), "target.url"},
		"a tab in a target's name": {target("a\tb", "http://x"), "target.name"},
		"a long target's name":     {target(strings.Repeat("x", 257), "http://x"), "target.name"},
	} {
		_, err := c.spec.Normalize()
		var wrong *SpecError
		if !errors.As(err, &wrong) || wrong.Field != c.field || wrong.Why == "" {
			t.Errorf("%s: error %v, want one of the field %s", name, err, c.field)
		}
	}
}

func TestNormalizeLeavesTheCallersTargetAsItIs(t *testing.T) {
	given := &Target{URL: "http://x"}
	if _, err := (Spec{Tenant: "t", Target: given}).Normalize(); err != nil || given.Name != "" {
		t.Errorf("the caller's target is %+v, error %v", given, err)
	}
}

func TestSpecEqual(t *testing.T) {
	full := func() Spec {
		return Spec{ID: "a", Tenant: "t", Type: WebhookType, Target: &Target{"n", "http://n"}, Class: High,
			Aggregate: []string{"count"}, RunAt: time.Unix(1e9, 0).UTC(), MaxAttempts: 3, Timeout: time.Second, FailAbove: share64(0.5)}
	}
	for name, change := range map[string]func(*Spec){
		"id":         func(s *Spec) { s.ID = "b" },
		"tenant":     func(s *Spec) { s.Tenant = "u" },
		"type":       func(s *Spec) { s.Type = "echo" },
		"url":        func(s *Spec) { s.Target.URL = "http://m" },
		"no target":  func(s *Spec) { s.Target = nil },
		"class":      func(s *Spec) { s.Class = Low },
		"key":        func(s *Spec) { s.Key = "k" },
		"aggregate":  func(s *Spec) { s.Aggregate = append(s.Aggregate, "sum:x") },
		"run_at":     func(s *Spec) { s.RunAt = s.RunAt.Add(1) },
		"attempts":   func(s *Spec) { s.MaxAttempts = 4 },
		"timeout":    func(s *Spec) { s.Timeout = 2 * time.Second },
		"fail_above": func(s *Spec) { s.FailAbove = share64(0.6) },
		"any share":  func(s *Spec) { s.FailAbove = nil },
		"replay":     func(s *Spec) { s.ReplayOf = "z" },
	} {
		a, b := full(), full()
		if change(&b); a.Equal(b) || b.Equal(a) {
			t.Errorf("specs with another %s are equal", name)
		}
	}
	a, b := full(), full()
	b.RunAt = b.RunAt.In(time.FixedZone("", 3600))
	if !a.Equal(b) {
		t.Error("the same time in another zone is not equal")
	}
	encoded, err := json.Marshal(a)
	if err != nil {
		t.Fatal(err)
	}
	var read Spec
	if err := json.Unmarshal(encoded, &read); err != nil || !read.Equal(a) {
		t.Errorf("stored and read it is %+v, error %v", read, err)
	}
	a.Aggregate, b.Aggregate = nil, []string{}
	if !a.Equal(b) {
		t.Error("no aggregates and an empty list of them are not equal")
	}
}

func TestRedactURL(t *testing.T) {
	for text, want := range map[string]string{
		"":                               "",
		"https://api.example.com/x":      "https://api.example.com/x",
		"https://u:p@host:8443/a@b/c":    "https://xxxxx@host:8443/a@b/c",
		"https://p@ss:w@rd@host":         "https://xxxxx@host",
		"https://host/?token=s":          "https://host/?token=xxxxx",
		"https://host?a=s&b=&s&&c=s=s":   "https://host?a=xxxxx&b=xxxxx&xxxxx&&c=xxxxx",
		"https://host/x?a=1;token=s":     "https://host/x?a=xxxxx",
		"https://host/x?":                "https://host/x?",
		"https://u@host/x?u:p@h#s?s=s":   "https://xxxxx@host/x?xxxxx",
		"//u:p@host/x":                   "//xxxxx@host/x",
		"/x?token=s":                     "/x?token=xxxxx",
		"https://u:p@new.example/\xff%z": "https://xxxxx@new.example/\xff%z",
	} {
		if got := RedactURL(text); got != want || RedactURL(got) != got {
			t.Errorf("%q is shown as %q, want %q", text, got, want)
		}
	}
}

// A URL that an action may have keeps its host and path, and nothing else of it but names is shown.
func FuzzRedactURL(f *testing.F) {
	f.Add("https://user:secret@host:1/path%2f@?token=secret&x#secret")
	f.Add("HTTP://a@b@c?d=e=f&g;h")
	f.Fuzz(func(t *testing.T, text string) {
		target, err := Target{URL: text, Name: "n"}.Normalize()
		if err != nil {
			return
		}
		whole, err := url.Parse(target.URL)
		if err != nil {
			t.Fatal(err)
		}
		shown, err := url.Parse(RedactURL(text))
		if err != nil || shown.Scheme != whole.Scheme || shown.Host != whole.Host || shown.EscapedPath() != whole.EscapedPath() || shown.Fragment != "" {
			t.Fatalf("%q is shown as %q, %v", text, RedactURL(text), err)
		}
		if (shown.User != nil) != (whole.User != nil) || shown.User != nil && shown.User.String() != notShown {
			t.Fatalf("%q is shown as %q, with its user", text, RedactURL(text))
		}
		for part := range strings.SplitSeq(shown.RawQuery, "&") {
			if _, value, named := strings.Cut(part, "="); named && value != notShown || !named && part != "" && part != notShown {
				t.Fatalf("%q is shown as %q, with its query", text, RedactURL(text))
			}
		}
	})
}

func TestClassText(t *testing.T) {
	for text, want := range map[string]Class{"": Normal, "normal": Normal, "high": High, "low": Low} {
		var c Class
		if err := c.UnmarshalText([]byte(text)); err != nil || c != want {
			t.Errorf("%q is %v, error %v", text, c, err)
		}
		if written, err := want.MarshalText(); err != nil || text != "" && string(written) != text {
			t.Errorf("%v is written %q, error %v", want, written, err)
		}
	}
	for _, text := range []string{"High", "urgent", " low"} {
		if _, err := ParseClass(text); err == nil {
			t.Errorf("%q is a class", text)
		}
	}
}
