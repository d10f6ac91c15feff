package room

import (
	"encoding/json"
	"errors"
	"reflect"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	tellerJSON = `{"mode":"teller","capacity":10`
	parkJSON   = `{"mode":"park","batch":10,"interval_ms":1000,"stay_ms":2000`
)

// parseSettings parses and validates settings.
func parseSettings(text string) (Settings, error) {
	var s Settings
	if err := json.Unmarshal([]byte(text), &s); err != nil {
		return s, err
	}
	return s, s.Validate()
}

func TestSettingsDefaults(t *testing.T) {
	for _, test := range []struct {
		text, want string
	}{
		{tellerJSON + "}", `{"mode":"teller","capacity":10,"pass_ttl_ms":600000,"pass":"sliding","renewals":0,"claim_window_ms":10000,` +
			`"abandon_after_ms":120000,"grace_ms":180000,"max_waiting":1000000,"method":"fifo","on_store_failure":"closed",` +
			`"bind_tickets":false,"invitation_only":false,"codes":false}`},
		// In a park nobody can claim a place for longer than the stay.
		{parkJSON + "}", `{"mode":"park","batch":10,"interval_ms":1000,"stay_ms":2000,"claim_window_ms":2000,` +
			`"abandon_after_ms":120000,"grace_ms":180000,"max_waiting":1000000,"method":"fifo","on_store_failure":"closed",` +
			`"bind_tickets":false,"invitation_only":false,"codes":false}`},
		{tellerJSON + `,"pass_ttl_ms":null,"opens_at":null,"routes":null,"grace_ms":null}`, ""},
		{` { "capacity":10, "mode":"teller" , "routes":[]}` + "\n", ""},
	} {
		s, err := parseSettings(test.text)
		if err != nil {
			t.Errorf("%s: %v", test.text, err)
		}
		got, err := json.Marshal(s)
		want := test.want
		if want == "" {
			want = `{"mode":"teller","capacity":10,"pass_ttl_ms":600000`
			got = got[:min(len(want), len(got))]
		}
		if err != nil || string(got) != want {
			t.Errorf("%s became\n%s, %v, want\n%s", test.text, got, err, want)
		}
	}
}

// The default of joins_per_minute differs by address, and so is no number: 0 means any number.
func TestJoinsPerMinuteInJSON(t *testing.T) {
	for text, want := range map[string]int64{``: 0, `,"joins_per_minute":null`: 0, `,"joins_per_minute":0`: -1, `,"joins_per_minute":600`: 600} {
		s, err := parseSettings(tellerJSON + text + "}")
		if err != nil || s.JoinsPerMinute != want {
			t.Errorf("%q is %d, %v; want %d", text, s.JoinsPerMinute, err, want)
		}
		written, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		if again, err := parseSettings(string(written)); err != nil || again.JoinsPerMinute != want {
			t.Errorf("%s is %d, %v; want %d", written, again.JoinsPerMinute, err, want)
		}
	}
}

// Complete settings are returned unchanged.
func TestSettingsInFull(t *testing.T) {
	for _, text := range []string{
		`{"mode":"teller","capacity":10000000,"pass_ttl_ms":604800000,"pass":"fixed","renewals":1000,"claim_window_ms":600000,` +
			`"abandon_after_ms":86400000,"grace_ms":0,"max_waiting":10000000,"method":"lottery","opens_at":"2030-01-31T09:00:00.125Z",` +
			`"prequeue_from":"2030-01-31T08:00:00Z","ends_at":"2030-02-01T00:00:00Z","on_store_failure":"open",` +
			`"routes":[{"host":"*.example.com","path":"/checkout/*","method":"GET"},{"path":"/장바구니"}],"bypass":[{"host":"10.0.0.1"}],` +
			`"joins_per_minute":1000000,"bind_tickets":true,"invitation_only":true,"codes":true}`,
		`{"mode":"park","batch":1,"interval_ms":100,"stay_ms":100,"claim_window_ms":100,"abandon_after_ms":100,"grace_ms":1,` +
			`"max_waiting":1,"method":"fifo","repeats":"0 10 * * SAT","time_zone":"Asia/Seoul","lasts_ms":7200000,"prequeue_ms":1800000,"lanes":"vip=20,members=30,public=50","on_store_failure":"closed","joins_per_minute":0,"bind_tickets":false,"invitation_only":false,"codes":false}`,
	} {
		s, err := parseSettings(text)
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if got, err := json.Marshal(s); err != nil || string(got) != text {
			t.Errorf("%s became\n%s, %v", text, got, err)
		}
	}
}

var refusedJSON = []struct{ text, field, why string }{
	{`{}`, "mode", "is missing; give teller or park"},
	{`[]`, "settings", "are not a JSON object: it begins with []"},
	{`null`, "settings", "are not a JSON object"},
	{`{"mode":"teler"}`, "mode", `is "teler"; give teller or park`},
	{`{"mode":1}`, "mode", "is 1; give teller or park"},
	{`{"mode":""}`, "mode", `is ""; give`},
	{`{"mode":"teller"}`, "capacity", "is missing; give a whole number from 1 to 10,000,000"},
	{`{"mode":"park"}`, "batch", "is missing"},
	{`{"mode":"park","batch":1}`, "interval_ms", "is missing"},
	{`{"mode":"park","batch":1,"interval_ms":100}`, "stay_ms", "is missing"},
	{`{"mode":"teller","capacity":0}`, "capacity", "is 0; give a whole number from 1 to 10,000,000"},
	{`{"mode":"teller","capacity":10000001}`, "capacity", "is 10000001"},
	{`{"mode":"teller","capacity":1.5}`, "capacity", "is 1.5; give a whole number"},
	{`{"mode":"teller","capacity":"10"}`, "capacity", `is "10"; give a whole number`},
	{`{"mode":"teller","capacity":99999999999999999999}`, "capacity", "is 99999999999999999999"},
	{`{"mode":"teller","capacity":1,"capacity":2}`, "capacity", "is there twice"},
	{`{"mode":"teller","capacty":1}`, "capacty", "did you mean capacity?"},
	{`{"mode":"teller","Capacity":1}`, "Capacity", "did you mean capacity?"},
	{`{"mode":"teller","pass_ttl":1}`, "pass_ttl", "did you mean pass_ttl_ms?"},
	{`{"":1}`, `""`, "is not a setting"},
	{`{"colour":"red"}`, "colour", "there are mode, capacity, "},
	{parkJSON + `,"capacity":5}`, "capacity", "is for mode teller, and this room has mode park: leave it out"},
	{`{"renewals":0,` + parkJSON[1:] + `}`, "renewals", "is for mode teller"},
	{tellerJSON + `,"batch":5}`, "batch", "is for mode park"},
	{tellerJSON + `,"pass_ttl_ms":99}`, "pass_ttl_ms", "is 99; give whole milliseconds from 100 to 604,800,000"},
	{tellerJSON + `,"pass_ttl_ms":0}`, "pass_ttl_ms", "is 0; give"},
	{tellerJSON + `,"pass_ttl_ms":100.5}`, "pass_ttl_ms", "is 100.5; give whole milliseconds"},
	{tellerJSON + `,"pass_ttl_ms":9223372036854775807}`, "pass_ttl_ms", "is 9223372036854775807"},
	{tellerJSON + `,"pass":"slide"}`, "pass", `is "slide"; give sliding or fixed`},
	{tellerJSON + `,"grace_ms":-1}`, "grace_ms", "is -1; give whole milliseconds from 0 to 86,400,000"},
	{tellerJSON + `,"claim_window_ms":600001}`, "claim_window_ms", "is 600001"},
	{tellerJSON + `,"max_waiting":0}`, "max_waiting", "is 0"},
	{tellerJSON + `,"joins_per_minute":-1}`, "joins_per_minute", "is -1"},
	{tellerJSON + `,"bind_tickets":1}`, "bind_tickets", "is 1; give true or false"},
	{tellerJSON + `,"renewals":1}`, "renewals", `needs "pass":"fixed"`},
	{tellerJSON + `,"method":"lottery"}`, "method", "needs opens_at"},
	{tellerJSON + `,"prequeue_from":"2030-01-01T00:00:00Z"}`, "prequeue_from", "needs opens_at"},
	{tellerJSON + `,"opens_at":"2030-01-01T00:00:00Z","prequeue_from":"2030-01-01T00:00:00Z"}`, "prequeue_from", "is not before opens_at, which is 2030-01-01T00:00:00Z"},
	{tellerJSON + `,"opens_at":"2030-01-01T00:00:00Z","ends_at":"2030-01-01T09:00:00+09:00"}`, "ends_at", "is not after opens_at"},
	{tellerJSON + `,"opens_at":"tomorrow"}`, "opens_at", `is "tomorrow"; give a time as in`},
	{tellerJSON + `,"opens_at":1900000000}`, "opens_at", "is 1900000000; give a time as in"},
	{tellerJSON + `,"opens_at":"0001-01-01T00:00:00Z"}`, "opens_at", "is in the year 1"},
	{tellerJSON + `,"repeats":"@daily"}`, "lasts_ms", "is missing; give how long each event lasts"},
	{tellerJSON + `,"repeats":5}`, "repeats", "is 5; give a text of at most 256 bytes"},
	{tellerJSON + `,"repeats":"@daily","lasts_ms":999}`, "lasts_ms", "is 999; give whole milliseconds from 1,000 to 31,622,400,000"},
	{tellerJSON + `,"repeats":"@daily","lasts_ms":1000,"opens_at":"2030-01-01T00:00:00Z"}`, "opens_at", "is for one event"},
	{tellerJSON + `,"repeats":"@daily","lasts_ms":1000,"method":"lottery"}`, "method", "draws for one opening"},
	{tellerJSON + `,"time_zone":"UTC"}`, "time_zone", "needs repeats"},
	{tellerJSON + `,"prequeue_ms":1000}`, "prequeue_ms", "needs repeats"},
	{tellerJSON + `,"lanes":"vip"}`, "lanes", "give lanes as in vip=20,members=30,public=50"},
	{tellerJSON + `,"lanes":"vip=101,public=1"}`, "lanes", `has the share "101"`},
	{tellerJSON + `,"lanes":"VIP=1,public=1"}`, "lanes", `has the name "VIP"`},
	{tellerJSON + `,"lanes":"a=1,b=2,a=3"}`, "lanes", "has a twice"},
	{tellerJSON + `,"lanes":"a=1,b=1,c=1,d=1,e=1,f=1,g=1,h=1,i=1"}`, "lanes", "has 9 lanes; give at most 8"},
	{tellerJSON + `,"lanes":"a=1,b=1","method":"lottery","opens_at":"2030-01-01T00:00:00Z"}`, "lanes", "cannot be in a room whose method is lottery"},
	{tellerJSON + `,"on_store_failure":"ajar"}`, "on_store_failure", "give open or closed"},
	{tellerJSON + `,"routes":{}}`, "routes", "give a list"},
	{tellerJSON + `,"routes":["/a"]}`, "routes[0]", "give an object"},
	{tellerJSON + `,"routes":[{"path":"/a"},{}]}`, "routes[1]", "is empty"},
	{tellerJSON + `,"routes":[{"paht":"/a"}]}`, "routes[0].paht", "did you mean path?"},
	{tellerJSON + `,"routes":[{"path":"/a","path":"/b"}]}`, "routes[0].path", "is there twice"},
	{tellerJSON + `,"routes":[{"path":5}]}`, "routes[0].path", "is 5; give text"},
	{tellerJSON + `,"bypass":[{"path":""}]}`, "bypass[0].path", "leave it out"},
	{tellerJSON + `,"bypass":[{"path":"static"}]}`, "bypass[0].path", "does not begin with /"},
	{tellerJSON + `,"routes":[` + strings.Repeat(`{"path":"/a"},`, 100) + `{"path":"/b"}]}`, "routes", "has 101 rules; give 100 at most"},
	{tellerJSON + `,"routes":[` + strings.Repeat(`{"path":"/`+strings.Repeat("<", 500)+`"},`, 99) + `{"path":"/b"}]}`, "routes", "give shorter rules"},
}

func TestSettingsRefused(t *testing.T) {
	for _, test := range refusedJSON {
		_, err := parseSettings(test.text)
		var wrong *SettingsError
		if !errors.As(err, &wrong) || wrong.Field != test.field || !strings.Contains(wrong.Why, test.why) {
			t.Errorf("%.200s: %v, want %s …%s", test.text, err, test.field, test.why)
		}
	}
}

// Settings built in Go are checked as those in JSON are.
func TestSettingsValidate(t *testing.T) {
	teller, park := Settings{Mode: Teller, Capacity: 1}, Settings{Mode: Park, Batch: 1, Interval: time.Second, Stay: time.Minute}
	with := func(s Settings, change func(*Settings)) Settings {
		change(&s)
		return s
	}
	for name, test := range map[string]struct {
		settings Settings
		field    string
	}{
		"teller":                   {teller, ""},
		"park":                     {park, ""},
		"zero":                     {Settings{}, "mode"},
		"a park with a pass":       {with(park, func(s *Settings) { s.Pass = Fixed }), "pass"},
		"a park with a capacity":   {with(park, func(s *Settings) { s.Capacity = 1 }), "capacity"},
		"a teller with a stay":     {with(teller, func(s *Settings) { s.Stay = time.Second }), "stay_ms"},
		"microseconds":             {with(teller, func(s *Settings) { s.PassTTL = time.Second + 1 }), "pass_ttl_ms"},
		"no grace":                 {with(teller, func(s *Settings) { s.Grace = -time.Second }), ""},
		"a grace of microseconds":  {with(teller, func(s *Settings) { s.Grace = 1 }), "grace_ms"},
		"a negative number":        {with(teller, func(s *Settings) { s.MaxWaiting = -1 }), "max_waiting"},
		"a negative window":        {with(park, func(s *Settings) { s.ClaimWindow = -1 }), "claim_window_ms"},
		"a window above the stay":  {with(park, func(s *Settings) { s.ClaimWindow = 2 * time.Minute }), ""},
		"a year of five digits":    {with(teller, func(s *Settings) { s.EndsAt = time.Date(10000, 1, 1, 0, 0, 0, 0, time.UTC) }), "ends_at"},
		"a rule without a slash":   {with(teller, func(s *Settings) { s.Bypass = []Rule{{Path: "/a"}, {Path: "b"}} }), "bypass[1].path"},
		"more rules than there be": {with(teller, func(s *Settings) { s.Routes = make([]Rule, 101) }), "routes"},
	} {
		err := test.settings.Validate()
		var wrong *SettingsError
		if errors.As(err, &wrong); (test.field == "") != (err == nil) || wrong != nil && wrong.Field != test.field {
			t.Errorf("%s: %v, want an error of %q", name, err, test.field)
		}
	}
}

func drawTime(t *rapid.T, name string) time.Time {
	return time.UnixMilli(rapid.Int64Range(0, 4e12).Draw(t, name)).UTC()
}

func drawLasting(low, high time.Duration) *rapid.Generator[time.Duration] {
	return rapid.Custom(func(t *rapid.T) time.Duration {
		return time.Duration(rapid.Int64Range(low.Milliseconds(), high.Milliseconds()).Draw(t, "ms")) * time.Millisecond
	})
}

// drawSettings draws valid settings.
func drawSettings(t *rapid.T) Settings {
	s := Settings{
		Mode:         rapid.SampledFrom([]Mode{Teller, Park}).Draw(t, "mode"),
		ClaimWindow:  drawLasting(0, maxClaim).Filter(func(d time.Duration) bool { return d == 0 || d >= minWindow }).Draw(t, "claim"),
		AbandonAfter: drawLasting(minWindow, maxSilence).Draw(t, "abandon"),
		Grace:        drawLasting(-2*time.Millisecond, maxSilence).Draw(t, "grace"),
		MaxWaiting:   rapid.Int64Range(0, MaxVisitors).Draw(t, "max waiting"),
		BindTickets:  rapid.Bool().Draw(t, "bind"), InvitationOnly: rapid.Bool().Draw(t, "invitation"),
	}
	if s.Mode == Teller {
		s.Capacity = rapid.Int64Range(1, MaxVisitors).Draw(t, "capacity")
		s.PassTTL = drawLasting(minWindow, maxVisit).Draw(t, "ttl")
		if rapid.Bool().Draw(t, "fixed") {
			s.Pass, s.Renewals = Fixed, rapid.IntRange(0, maxRenewals).Draw(t, "renewals")
		}
	} else {
		s.Batch = rapid.Int64Range(1, MaxVisitors).Draw(t, "batch")
		s.Interval, s.Stay = drawLasting(minWindow, maxInterval).Draw(t, "interval"), drawLasting(minWindow, maxVisit).Draw(t, "stay")
	}
	if rapid.Bool().Draw(t, "scheduled") {
		s.OpensAt = drawTime(t, "opens")
		s.EndsAt = s.OpensAt.Add(drawLasting(time.Millisecond, maxVisit).Draw(t, "until the end")).In(time.FixedZone("KST", 9*60*60))
		s.Method = rapid.SampledFrom([]Method{"", FIFO, Lottery}).Draw(t, "method")
	}
	path := rapid.StringMatching(`/|(/[a-z가-힣<>"%_.]{0,5}x){1,3}(/\*|/)?`)
	for range rapid.IntRange(0, 3).Draw(t, "rules") {
		s.Routes = append(s.Routes, Rule{Path: path.Draw(t, "path"), Method: rapid.SampledFrom([]string{"", "GET"}).Draw(t, "method")})
		s.Bypass = append(s.Bypass, Rule{Host: rapid.StringMatching(`(\*\.)?[a-z0-9]{1,4}(\.[A-Z]{1,3}){0,2}`).Draw(t, "host")})
	}
	return s
}

// Valid settings survive a round trip through JSON, and so does their JSON.
func TestSettingsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := drawSettings(t)
		text, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseSettings(string(text))
		if err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		if want := s.WithDefaults(); !reflect.DeepEqual(got, want) {
			t.Fatalf("%s became %+v, want %+v", text, got, want)
		}
		if again := got.WithDefaults(); !reflect.DeepEqual(again, got) {
			t.Fatalf("with defaults twice: %+v, once %+v", again, got)
		}
	})
}

func FuzzSettings(f *testing.F) {
	f.Add([]byte(tellerJSON + `,"grace_ms":0,"opens_at":"2030-01-01T00:00:00.1Z","method":"lottery","routes":[{"path":"/a/*"}]}`))
	f.Add([]byte(parkJSON + `}`))
	f.Add([]byte(`{"mode":"park","batch":null}`))
	f.Add([]byte(`{"mode":"teller"} x`))
	f.Fuzz(func(t *testing.T, text []byte) {
		var s Settings
		if err := s.UnmarshalJSON(text); err != nil {
			var wrong *SettingsError
			if !errors.As(err, &wrong) || wrong.Field == "" || wrong.Why == "" || len(wrong.Field) > 100 {
				t.Fatalf("%q: %v", text, err)
			}
			return
		}
		if !json.Valid(text) {
			t.Fatalf("%q was taken", text)
		}
		valid := s.Validate() == nil
		again, err := json.Marshal(s)
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseSettings(string(again))
		if valid && (err != nil || !reflect.DeepEqual(got, s)) {
			t.Fatalf("%q is %+v, and after %s %+v, %v", text, s, again, got, err)
		}
	})
}

func TestValidName(t *testing.T) {
	for name, valid := range map[string]bool{
		"shop": true, "0": true, "black-friday-2030": true, strings.Repeat("a", 64): true, "a-": true,
		"": false, "-a": false, "Shop": false, "a_b": false, "a/b": false, "a b": false, "a.b": false, "é": false, strings.Repeat("a", 65): false,
	} {
		err := ValidName(name)
		var wrong *SettingsError
		if (err == nil) != valid || err != nil && (!errors.As(err, &wrong) || wrong.Field != "room") {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestGrouped(t *testing.T) {
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 604_800_000: "604,800,000"} {
		if got := grouped(n); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}
