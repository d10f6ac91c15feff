package view

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/topic"
)

// fatal is the common interface of tests, benchmarks and properties.
type fatal interface {
	Helper()
	Fatal(args ...any)
}

func compile(t fatal, where string) *Filter {
	t.Helper()
	filter, err := Compile(where)
	if err != nil {
		t.Fatal(err)
	}
	return filter
}

func TestFilterMatches(t *testing.T) {
	record := topic.Record{
		Offset: 5, Timestamp: 1_700_000_000_123, Key: []byte("customer-7"), Value: []byte(`{"total":120}`),
		Headers: []topic.Header{{Key: "tag", Value: []byte("new")}, {Key: "tag", Value: []byte("paid")}, {Key: "size", Value: []byte("12")}, {Key: "empty", Value: nil}},
	}
	tests := []struct {
		where   string
		matches bool
		fails   bool
	}{
		{`true`, true, false},
		{`false`, false, false},
		{`headers.tag == "paid"`, true, false},
		{`headers["tag"] == "paid"`, true, false},
		{`headers.tag == "new"`, false, false},
		{`headers.empty == ""`, true, false},
		{`headers.absent == "paid"`, false, true},
		{`headers.absent != "paid"`, false, true},
		{`!(headers.absent == "paid")`, false, true},
		{`has(headers.absent) && headers.absent == "paid"`, false, false},
		{`!has(headers.absent) || headers.absent == "paid"`, true, false},
		{`"tag" in headers`, true, false},
		{`"absent" in headers`, false, false},
		{`headers.absent == "x" || headers.tag == "paid"`, true, false},
		{`headers.exists(name, headers[name] == "12")`, true, false},
		{`headers.all(name, name != "other")`, true, false},
		{`size(headers) == 3`, true, false},
		{`headers == {"tag": "paid", "size": "12", "empty": ""}`, true, false},
		{`int(headers.size) > 10`, true, false},
		{`int(headers.tag) > 10`, false, true},
		{`key == "customer-7"`, true, false},
		{`key.startsWith("customer-") && key.endsWith("-7")`, true, false},
		{`key.matches("^customer-[0-9]+$")`, true, false},
		{`string(value).contains("120")`, true, false},
		{`value == b'{"total":120}'`, true, false},
		{`size(value) > 100`, false, false},
		{`timestamp > timestamp("2023-11-14T00:00:00Z")`, true, false},
		{`timestamp.getFullYear() == 2023`, true, false},
		{`timestamp == timestamp("2023-11-14T22:13:20.123Z")`, true, false},
	}
	for _, test := range tests {
		filter := compile(t, test.where)
		matches, err := filter.Match(&record)
		if matches != test.matches || (err != nil) != test.fails {
			t.Errorf("%s: %v, %v; want %v, an error: %v", test.where, matches, err, test.matches, test.fails)
		}
		if uses := strings.Contains(test.where, "headers"); uses != filter.headers {
			t.Errorf("%s: looks at headers: %v, want %v", test.where, filter.headers, uses)
		}
	}
}

func TestFilterOfNull(t *testing.T) {
	if matches, err := compile(t, `key == "" && value == b"" && size(headers) == 0`).Match(&topic.Record{}); !matches || err != nil {
		t.Errorf("%v, %v; want what is null to be empty", matches, err)
	}
}

// A record whose evaluation would take long does not match.
func TestFilterCostIsBounded(t *testing.T) {
	filter := compile(t, `headers.all(a, headers.all(b, headers[a] != headers[b] + "x"))`)
	record := topic.Record{}
	for i := range 2000 {
		record.Headers = append(record.Headers, topic.Header{Key: fmt.Sprint(i), Value: []byte("v")})
	}
	if matches, err := filter.Match(&record); matches || err == nil || !strings.Contains(err.Error(), "cost limit") {
		t.Errorf("%v, %v; want an error of the cost limit", matches, err)
	}
	record.Headers = record.Headers[:20]
	if matches, err := filter.Match(&record); !matches || err != nil {
		t.Errorf("with few headers %v, %v; want a match", matches, err)
	}
}

// A text that is too long for its pattern does not match.
func TestPatternStepsAreBounded(t *testing.T) {
	for _, where := range []string{`!key.matches("(x?){200}y$")`, `!matches(key, "(x?){200}y$")`} {
		filter := compile(t, where)
		record := topic.Record{Key: bytes.Repeat([]byte("x"), 1<<20)}
		if matches, err := filter.Match(&record); matches || err == nil || !strings.Contains(err.Error(), "too long for the pattern") {
			t.Errorf("%s: %v, %v; want an error of the pattern", where, matches, err)
		}
		record.Key = record.Key[:1000]
		if matches, err := filter.Match(&record); !matches || err != nil {
			t.Errorf("%s with a short key: %v, %v; want a match", where, matches, err)
		}
	}
}

func TestFilterErrors(t *testing.T) {
	tests := []struct {
		where        string
		line, column int
		says         string
	}{
		{``, 0, 0, "want a boolean expression"},
		{`headers.tag = "paid"`, 1, 13, "Syntax error"},
		{`header.tag == "paid"`, 1, 1, "undeclared reference to 'header' (did you mean 'headers'?): want key (string), value (bytes)"},
		{`headers.tag == 5`, 1, 13, "no matching overload"},
		{"true &&\n  topic == 'a'", 2, 3, "undeclared reference to 'topic'"},
		{`headers.tag`, 0, 0, "type string: want bool"},
		{`dyn(headers.tag)`, 0, 0, "type dyn: want bool"},
		{`key.matches("[")`, 1, 13, "invalid"},
		{`matches(key, headers.pattern)`, 1, 21, "not a constant"},
		{`key.matches("(.?.?.?.?.?.?.?.?.?.?){1000}")`, 1, 13, "exceeds limit of 1000"},
		{`timestamp > timestamp("yesterday")`, 1, 23, "invalid"},
		{`key == "` + strings.Repeat("x", FilterBytes) + `"`, 0, 0, "want at most 4096"},
		{strings.Repeat("(", 200) + "true" + strings.Repeat(")", 200), 1, 1, "recursion"},
	}
	for _, test := range tests {
		_, err := Compile(test.where)
		var wrong *Error
		if !errors.As(err, &wrong) || !errors.Is(err, topic.ErrInvalidSetting) {
			t.Errorf("%.80s: %v, want a *FilterError", test.where, err)
			continue
		}
		if wrong.Line != test.line || wrong.Column != test.column || !strings.Contains(wrong.Problem, test.says) {
			t.Errorf("%.80s: line %d, column %d, %q; want %d, %d, %q", test.where, wrong.Line, wrong.Column, wrong.Problem, test.line, test.column, test.says)
		}
	}
	if _, err := Compile("tag"); err.Error() != `invalid topic setting: filter "tag" at column 1: undeclared reference to 'tag': want `+filterVariables {
		t.Errorf("the error reads %q", err)
	}
}

// headerMap behaves as any other map of CEL.
func TestHeaderMapIsAsAMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var headers []topic.Header
		model := map[string]string{}
		for range rapid.IntRange(0, 6).Draw(t, "headers") {
			header := topic.Header{Key: rapid.SampledFrom([]string{"a", "b", "c"}).Draw(t, "name"), Value: []byte(rapid.SampledFrom([]string{"", "x", "y"}).Draw(t, "value"))}
			headers = append(headers, header)
			model[header.Key] = string(header.Value)
		}
		for name, value := range model {
			where := fmt.Sprintf("headers[%q] == %q && %q in headers && size(headers) == %d", name, value, name, len(model))
			if matches, err := compile(t, where).Match(&topic.Record{Headers: headers}); !matches || err != nil {
				t.Fatalf("%s: %v, %v of %q", where, matches, err, headers)
			}
		}
		for _, name := range []string{"a", "b", "c"} {
			_, there := model[name]
			if found, err := compile(t, fmt.Sprintf("has(headers.%s)", name)).Match(&topic.Record{Headers: headers}); found != there || err != nil {
				t.Fatalf("header %s: %v, %v; want %v", name, found, err, there)
			}
		}
	})
}

func BenchmarkFilter(b *testing.B) {
	record := topic.Record{Key: []byte("customer-7"), Value: []byte(`{"total":120}`), Headers: []topic.Header{{Key: "trace", Value: []byte("0123456789abcdef")}, {Key: "tag", Value: []byte("paid")}}}
	for _, where := range []string{`headers.tag == "paid"`, `key.startsWith("customer-")`, `timestamp > timestamp("2023-11-14T00:00:00Z")`, `headers.absent == "paid"`} {
		filter := compile(b, where)
		b.Run(where, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				filter.Match(&record) //nolint:errcheck // one of them has an error each time
			}
		})
	}
}
