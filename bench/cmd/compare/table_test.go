package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/sluice-project/sluice/bench"
)

func TestMedian(t *testing.T) {
	tests := []struct {
		values []float64
		want   float64
	}{
		{[]float64{3}, 3},
		{[]float64{9, 1, 5}, 5},
		{[]float64{4, 1, 9, 2}, 3},
	}
	for _, test := range tests {
		given := slices.Clone(test.values)
		if got := median(test.values); got != test.want {
			t.Errorf("median of %v is %v, want %v", test.values, got, test.want)
		}
		if !slices.Equal(given, test.values) {
			t.Errorf("median changed %v to %v", given, test.values)
		}
	}
}

// Ratios are of the same run: here 10, 2 and 4, though the medians are 40 and 20.
func TestTables(t *testing.T) {
	found := &results{}
	for _, run := range [][2]float64{{10, 1}, {40, 20}, {2000, 500}} {
		rates := found.table("Rates", "jobs/s", rate)
		rates.add("sluice", run[0])
		rates.add("peer", run[1])
		found.table("Shares", "of ideal", share).add("sluice", 1.0004)
	}
	var out bytes.Buffer
	if err := printAll(&out, []bench.Fact{{Name: "Go", Value: "go1"}}, found.tables, 3); err != nil {
		t.Fatal(err)
	}
	want := `Runs: 3. Go: go1.

### Rates

jobs/s

|  | median | lowest | highest | sluice is |
| --- | --- | --- | --- | --- |
| sluice | 40 | 10 | 2,000 |  |
| peer | 20 | 1 | 500 | 4.0 × |

### Shares

of ideal

|  | median | lowest | highest |
| --- | --- | --- | --- |
| sluice | 1.000 | 1.000 | 1.000 |
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", &out, want)
	}
}

// After a run that failed midway, a row may lack a value, or be missing.
func TestTableOfAnUnfinishedRun(t *testing.T) {
	unfinished := &resultTable{unit: rate}
	unfinished.add("sluice", 30)
	unfinished.add("peer", 10)
	unfinished.add("sluice", 90)
	if got := unfinished.ratio(unfinished.rows[1]); got != "3.0 ×" {
		t.Errorf("ratio %q, want that of the first run, 3.0 ×", got)
	}
}

func TestFlags(t *testing.T) {
	tests := []struct {
		args, err string
		measures  []string
	}{
		{"-runs 5 -only run,load", "", []string{"run", "load"}},
		{"-runs 5 -only bulk", "", []string{"enqueue", "enqueue-one", "run", "load", "memory"}},
		{"-runs 5 -only topic", "", []string{"produce", "produce-defaults", "produce-large", "produce-many", "latency", "settings", "view", "delay", "queue"}},
		{"-runs 5 -only topic-cluster", "", []string{"replicas"}},
		{"-runs 5 -only room", "", []string{"waiting", "streams", "counting"}},
		{"-runs 5 -only memory,topic,view", "", []string{"memory", "produce", "produce-defaults", "produce-large", "produce-many", "latency", "settings", "view", "delay", "queue"}},
		{"-runs 0", "at least 1", nil},
		{"-only walk", "want some of bulk,bulk-redis,topic,topic-cluster,room,enqueue,enqueue-one,run,load,memory,redis-enqueue,redis-enqueue-one,redis-run,produce", nil},
		{"enqueue", "there are flags only", nil},
		{"-fast", "not defined", nil},
	}
	for _, test := range tests {
		o, err := parse(strings.Fields(test.args), io.Discard)
		var measures []string
		for _, m := range o.measures {
			measures = append(measures, m.name)
		}
		switch {
		case test.err == "" && (err != nil || o.runs != 5 || !slices.Equal(measures, test.measures)):
			t.Errorf("%s: %+v, measures %v, %v", test.args, o, measures, err)
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: error %v, want %q in it", test.args, err, test.err)
		}
	}
}

// The requirements of a part are checked only if a measure of it is taken.
func TestPartsOfMeasures(t *testing.T) {
	for only, want := range map[string]bench.Parts{
		"bulk": {Bulk: true}, "view": {Topic: true}, "run,delay": {Bulk: true, Topic: true}, "counting": {Room: true},
		"replicas": {TopicCluster: true},
	} {
		o, err := parse([]string{"-only", only}, io.Discard)
		if got := o.parts(); err != nil || got != want {
			t.Errorf("-only %s: the parts are %+v, %v; want %+v", only, got, err, want)
		}
	}
}

// Milliseconds are compared as well, with two digits: below 1 is better.
func TestTableOfLatencies(t *testing.T) {
	found := &results{}
	latencies := found.table("Latency", "ms", milliseconds)
	for _, run := range [][2]float64{{1, 4}, {2, 4}, {1.5, 2}} {
		latencies.add("sluice", run[0])
		latencies.add("peer", run[1])
	}
	want := `|  | median | lowest | highest | sluice is |
| --- | --- | --- | --- | --- |
| sluice | 1.500 | 1.000 | 2.000 |  |
| peer | 4.000 | 2.000 | 4.000 | 0.50 × |`
	if got := latencies.render(); got != want {
		t.Errorf("rendered\n%s\nwant\n%s", got, want)
	}
}

// The tables of a grid are printed as one, once.
func TestGrid(t *testing.T) {
	found := &results{}
	for _, run := range []float64{1, 3, 2} {
		found.table("Alone", "ms", milliseconds).add("resident", run)
		for i, name := range []string{"a", "b"} {
			found.table("Peak", "records/s", rate).in("Settings", "busy").add(name, 1000*run+float64(i))
			found.table("Wait", "ms", milliseconds).in("Settings", "wait").add(name, run+float64(i))
		}
	}
	var out bytes.Buffer
	if err := printAll(&out, nil, found.tables[1:], 3); err != nil {
		t.Fatal(err)
	}
	want := `Runs: 3.

### Settings

Medians.

|  | busy | wait |
| --- | --- | --- |
| a | 2,000 | 2.000 |
| b | 2,001 | 3.000 |
`
	if out.String() != want {
		t.Errorf("printed\n%s\nwant\n%s", &out, want)
	}
}

// JSON has every run's value, and the ratio only where one is printed.
func TestJSON(t *testing.T) {
	found := &results{}
	for _, run := range [][2]float64{{10, 1}, {40, 20}, {2000, 500}} {
		rates := found.table("Rates", "jobs/s", rate)
		rates.add("sluice", run[0])
		rates.add("peer", run[1])
		found.table("Memory", "MiB", mebibytes).add("resident", run[0])
	}
	var out bytes.Buffer
	if err := printJSON(&out, []bench.Fact{{Name: "Go", Value: "go1"}}, found.tables, 3); err != nil {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(out.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	four := 4.0
	want := report{Runs: 3, Facts: map[string]string{"Go": "go1"}, Tables: []reportTable{
		{Title: "Rates", What: "jobs/s", Unit: "per_second", Rows: []reportRow{
			{Name: "sluice", Median: 40, Lowest: 10, Highest: 2000, Values: []float64{10, 40, 2000}},
			{Name: "peer", Median: 20, Lowest: 1, Highest: 500, Values: []float64{1, 20, 500}, Ratio: &four},
		}},
		{Title: "Memory", What: "MiB", Unit: "mebibytes", Rows: []reportRow{
			{Name: "resident", Median: 40, Lowest: 10, Highest: 2000, Values: []float64{10, 40, 2000}},
		}},
	}}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("printed\n%s\nwant %+v", &out, want)
	}
}

var errClosed = errors.New("closed")

type closedWriter struct{}

func (closedWriter) Write([]byte) (int, error) { return 0, errClosed }

func TestPrintingTellsOfAFullDisk(t *testing.T) {
	for _, show := range []func(io.Writer, []bench.Fact, []*resultTable, int) error{printAll, printJSON} {
		if err := show(closedWriter{}, nil, nil, 1); !errors.Is(err, errClosed) {
			t.Errorf("error %v, want that of the writer", err)
		}
	}
}
