package main

import (
	"bytes"
	"errors"
	"io"
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

// After a run that failed midway, a row may be short of a value, or missing.
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
	}{
		{"-runs 5 -only run,load", ""},
		{"-runs 0", "at least 1"},
		{"-only walk", "want some of enqueue,run,load,memory"},
		{"enqueue", "there are flags only"},
		{"-fast", "not defined"},
	}
	for _, test := range tests {
		o, err := parse(strings.Fields(test.args), io.Discard)
		switch {
		case test.err == "" && (err != nil || o.runs != 5 || !slices.Equal(o.only, []string{"run", "load"})):
			t.Errorf("%s: %+v, %v", test.args, o, err)
		case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
			t.Errorf("%s: error %v, want %q in it", test.args, err, test.err)
		}
	}
}

var errClosed = errors.New("closed")

type closedWriter struct{}

func (closedWriter) Write([]byte) (int, error) { return 0, errClosed }

func TestPrintingTellsOfAFullDisk(t *testing.T) {
	if err := printAll(closedWriter{}, nil, nil, 1); !errors.Is(err, errClosed) {
		t.Errorf("error %v, want that of the writer", err)
	}
}
