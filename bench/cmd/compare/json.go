package main

import (
	"encoding/json"
	"io"
	"slices"

	"github.com/sluice-project/sluice/bench"
)

// report is the output of -json.
type report struct {
	Runs  int               `json:"runs"`
	Facts map[string]string `json:"facts"`
	// Tables are in the order of the Markdown output.
	Tables []reportTable `json:"tables"`
}

type reportTable struct {
	Title string      `json:"title"`
	What  string      `json:"what"`
	Unit  string      `json:"unit"`
	Rows  []reportRow `json:"rows"`
}

type reportRow struct {
	Name    string    `json:"name"`
	Median  float64   `json:"median"`
	Lowest  float64   `json:"lowest"`
	Highest float64   `json:"highest"`
	Values  []float64 `json:"values"` // of each run
	// Ratio is the first row's value divided by this row's, the median of the runs; absent if
	// nothing is compared.
	Ratio *float64 `json:"first_is,omitempty"`
}

// String is the unit's name in JSON.
func (u unit) String() string {
	return [...]string{
		rate: "per_second", share: "share", mebibytes: "mebibytes", milliseconds: "milliseconds", lateness: "milliseconds",
		microseconds: "microseconds", kibibytes: "kibibytes", whole: "count",
	}[u]
}

// printJSON prints the data of printAll, and the value of each run.
func printJSON(out io.Writer, facts []bench.Fact, tables []*resultTable, runs int) error {
	all := report{Runs: runs, Facts: map[string]string{}, Tables: []reportTable{}}
	for _, f := range facts {
		all.Facts[f.Name] = f.Value
	}
	for _, t := range tables {
		made := reportTable{Title: t.title, What: t.what, Unit: t.unit.String(), Rows: []reportRow{}}
		for _, r := range t.rows {
			row := reportRow{
				Name: r.name, Values: r.values, Median: median(r.values), Lowest: slices.Min(r.values), Highest: slices.Max(r.values),
			}
			if t.unit.compared() && r != t.rows[0] {
				ratio := t.ratioOf(r)
				row.Ratio = &ratio
			}
			made.Rows = append(made.Rows, row)
		}
		all.Tables = append(all.Tables, made)
	}
	encoder := json.NewEncoder(out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(all)
}
