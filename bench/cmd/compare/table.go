package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"

	"github.com/sluice-project/sluice/bench"
)

// unit is the unit of a table's numbers.
type unit int

const (
	// rate is better when higher, and is compared.
	rate unit = iota
	share
	mebibytes
	// milliseconds are better when lower, and are compared too.
	milliseconds
	// lateness is in milliseconds too, of rows that are not compared.
	lateness
	// microseconds are better when lower, and are compared too.
	microseconds
	kibibytes
	whole
)

// compared reports whether the first system is compared with the others.
func (u unit) compared() bool { return u == rate || u == milliseconds || u == microseconds }

// format prints about three digits: more would be noise.
func (u unit) format(value float64) string {
	switch u {
	case rate:
		return humanize.Comma(int64(value))
	case share, milliseconds, lateness:
		return strconv.FormatFloat(value, 'f', 3, 64)
	case microseconds, kibibytes:
		return strconv.FormatFloat(value, 'f', 1, 64)
	default:
		return strconv.FormatFloat(value, 'f', 0, 64)
	}
}

// digits returns the number of decimals of a ratio.
func (u unit) digits() int {
	if u == milliseconds || u == microseconds {
		return 2
	}
	return 1
}

// results are the tables in the order in which they were first asked for.
type results struct{ tables []*resultTable }

// resultTable has a row for each system, and in it a value for each run.
type resultTable struct {
	title, what string
	unit        unit
	rows        []*row
	// grid is the title of a table of medians in which this is a column, and column its header;
	// empty: the table is printed by itself.
	grid, column string
}

// in makes the table a column of a grid.
func (t *resultTable) in(grid, column string) *resultTable {
	t.grid, t.column = grid, column
	return t
}

type row struct {
	name   string
	values []float64
}

// table returns the table with that title, and creates it if needed.
func (r *results) table(title, what string, u unit) *resultTable {
	for _, t := range r.tables {
		if t.title == title {
			return t
		}
	}
	made := &resultTable{title: title, what: what, unit: u}
	r.tables = append(r.tables, made)
	return made
}

// add adds the value of one run.
func (t *resultTable) add(name string, value float64) {
	for _, r := range t.rows {
		if r.name == name {
			r.values = append(r.values, value)
			return
		}
	}
	t.rows = append(t.rows, &row{name, []float64{value}})
}

// render returns the table as Markdown.
func (t *resultTable) render() string {
	w := table.NewWriter()
	header := table.Row{"", "median", "lowest", "highest"}
	if t.unit.compared() && len(t.rows) > 1 {
		header = append(header, t.first()+" is")
	}
	w.AppendHeader(header)
	for _, r := range t.rows {
		cells := table.Row{r.name, t.unit.format(median(r.values)), t.unit.format(slices.Min(r.values)), t.unit.format(slices.Max(r.values))}
		if t.unit.compared() && len(t.rows) > 1 {
			cells = append(cells, t.ratio(r))
		}
		w.AppendRow(cells)
	}
	return w.RenderMarkdown()
}

// renderGrid returns the tables of a grid as one table of medians.
func renderGrid(tables []*resultTable, grid string) string {
	header, rows := table.Row{""}, []table.Row{}
	for _, t := range tables {
		if t.grid != grid {
			continue
		}
		header = append(header, t.column)
		for i, r := range t.rows {
			if i == len(rows) {
				rows = append(rows, table.Row{r.name})
			}
			rows[i] = append(rows[i], t.unit.format(median(r.values)))
		}
	}
	w := table.NewWriter()
	w.AppendHeader(header)
	w.AppendRows(rows)
	return w.RenderMarkdown()
}

// first returns the name of the row that the others are compared with.
func (t *resultTable) first() string { return t.rows[0].name }

// ratio returns ratioOf as text; empty for the first row itself.
func (t *resultTable) ratio(r *row) string {
	if r == t.rows[0] {
		return ""
	}
	return strconv.FormatFloat(t.ratioOf(r), 'f', t.unit.digits(), 64) + " ×"
}

// ratioOf returns the median of the first row's value divided by this row's in the same run. A
// failed run may have left the row without its last value.
func (t *resultTable) ratioOf(r *row) float64 {
	var ratios []float64
	for i, value := range r.values {
		ratios = append(ratios, t.rows[0].values[i]/value)
	}
	return median(ratios)
}

// median returns the middle value, or the mean of the two in the middle.
func median(values []float64) float64 {
	sorted := slices.Sorted(slices.Values(values))
	middle := len(sorted) / 2
	if len(sorted)%2 == 1 {
		return sorted[middle]
	}
	return (sorted[middle-1] + sorted[middle]) / 2
}

// printAll prints the facts and the tables.
func printAll(out io.Writer, facts []bench.Fact, tables []*resultTable, runs int) error {
	var text strings.Builder
	fmt.Fprintf(&text, "Runs: %d.", runs)
	for _, f := range facts {
		fmt.Fprintf(&text, " %s: %s.", f.Name, f.Value)
	}
	text.WriteString("\n")
	printed := ""
	for _, t := range tables {
		switch {
		case len(t.rows) == 0:
		case t.grid == "":
			fmt.Fprintf(&text, "\n### %s\n\n%s\n\n%s\n", t.title, t.what, t.render())
		case t.grid != printed:
			printed = t.grid
			fmt.Fprintf(&text, "\n### %s\n\nMedians.\n\n%s\n", t.grid, renderGrid(tables, t.grid))
		}
	}
	_, err := io.WriteString(out, text.String())
	return err
}
