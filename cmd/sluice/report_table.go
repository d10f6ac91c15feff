package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// grid is a table for people: a header, rows, a footer, in at most so many
// columns of text.
type grid struct {
	Header []string
	// Left names the columns of words; the others hold figures.
	Left   map[int]bool
	Rows   [][]string
	Footer []string
}

// Write writes the table. A table that is too wide for the screen loses width in
// its columns of words, the widest first.
func (g *grid) Write(w io.Writer, columns int) {
	t := table.NewWriter()
	t.SetStyle(gridStyle)
	t.AppendHeader(cells(g.Header))
	for _, row := range g.Rows {
		t.AppendRow(cells(row))
	}
	if g.Footer != nil {
		t.AppendFooter(cells(g.Footer))
	}
	t.SetColumnConfigs(g.columns(columns))
	for line := range strings.Lines(t.Render() + "\n") {
		line = strings.TrimRight(line, " \n")
		if strings.HasSuffix(line, rule+rule+rule) {
			line = strings.TrimSuffix(line, rule+rule) // below the last column's padding
		}
		io.WriteString(w, line+"\n") //nolint:errcheck // Standard output: there is nobody to tell.
	}
}

// rule is what the lines between header, rows and footer are made of.
const rule = "─"

// gridStyle has one line below the header and one above the footer.
var gridStyle = func() table.Style {
	style := table.StyleLight
	style.Name = "sluice"
	style.Options = table.Options{SeparateHeader: true, SeparateFooter: true}
	style.Box.PaddingLeft, style.Box.PaddingRight = "", "  "
	style.Format = table.FormatOptions{}
	return style
}()

func (g *grid) columns(available int) []table.ColumnConfig {
	configs := make([]table.ColumnConfig, len(g.Header))
	for i, limit := range g.limits(available) {
		align := text.AlignRight
		if g.Left[i] {
			align = text.AlignLeft
		}
		configs[i] = table.ColumnConfig{
			Number: i + 1, Align: align, AlignHeader: align, AlignFooter: align,
			WidthMax: limit, WidthMaxEnforcer: clip,
		}
	}
	return configs
}

// leastWords is how narrow a column of words may become.
const leastWords = 8

// limits returns the columns' widths, cut so that the table fits.
func (g *grid) limits(available int) []int {
	widths := g.widths()
	for excess := g.width() - available; excess > 0; excess-- {
		widest := -1
		for i := range widths {
			if g.Left[i] && widths[i] > leastWords && (widest < 0 || widths[i] > widths[widest]) {
				widest = i
			}
		}
		if widest < 0 {
			break
		}
		widths[widest]--
	}
	return widths
}

// width is how many columns of text the table takes.
func (g *grid) width() int {
	all := -2 // the last column's padding is cut
	for _, width := range g.widths() {
		all += width + 2
	}
	return all
}

func (g *grid) widths() []int {
	widths := make([]int, len(g.Header))
	for _, row := range append([][]string{g.Header, g.Footer}, g.Rows...) {
		for i, cell := range row {
			widths[i] = max(widths[i], text.StringWidthWithoutEscSequences(cell))
		}
	}
	return widths
}

func cells(texts []string) table.Row {
	row := make(table.Row, len(texts))
	for i, cell := range texts {
		row[i] = cell
	}
	return row
}

// longestName is the most columns of a tenant's name in a table.
const longestName = 24

// tenantColumn is a column of figures of the table of tenants.
type tenantColumn struct {
	header string
	cell   func(row *reportRow) string
	// unsummed leaves the cell of the footer empty: it says nothing there.
	unsummed bool
}

// tenantColumns are in the order of the table.
var tenantColumns = []tenantColumn{
	{header: "jobs", cell: func(r *reportRow) string { return humanize.Comma(r.Total) }},
	{header: "ok", cell: func(r *reportRow) string { return humanize.Comma(r.Succeeded) }},
	{header: "failed", cell: func(r *reportRow) string { return humanize.Comma(r.Failed) }},
	{header: "throttled", cell: func(r *reportRow) string { return humanize.Comma(r.Throttled) }},
	{header: "wait", cell: func(r *reportRow) string { return spell(r.Wait) }},
	{header: "elapsed", cell: func(r *reportRow) string { return spell(r.Elapsed) }},
	{header: "1st half", cell: func(r *reportRow) string { return partOf(r.Half) }, unsummed: true},
	{header: "fair", cell: func(r *reportRow) string { return partOf(r.Fair) }, unsummed: true},
}

// tenantTable writes what became of each tenant. Where the screen is too narrow
// for the names of tenants, the columns farthest right are left out.
func (r *runReport) tenantTable(w io.Writer, columns, top int) {
	for count := len(tenantColumns); ; count-- {
		g := r.tenantGrid(tenantColumns[:count], top)
		if count == 4 || g.width() <= columns {
			g.Write(w, columns)
			return
		}
	}
}

func (r *runReport) tenantGrid(figures []tenantColumn, top int) *grid {
	g := &grid{Header: []string{"tenant"}, Left: map[int]bool{0: true}}
	for _, figure := range figures {
		g.Header = append(g.Header, figure.header)
	}
	add := func(name string, row *reportRow) []string {
		cells := []string{clip(printable(name), longestName)}
		for _, figure := range figures {
			cells = append(cells, figure.cell(row))
		}
		return cells
	}
	rows, rest, folded := r.fold(top)
	for i := range rows {
		g.Rows = append(g.Rows, add(rows[i].Name, &rows[i]))
	}
	if rest != nil {
		g.Rows = append(g.Rows, add(fmt.Sprintf("+%s more", humanize.Comma(int64(folded))), rest))
	}
	if len(r.Rows) < 2 {
		return g
	}
	all := reportRow{standing: r.All, Wait: -1, Elapsed: r.Makespan}
	for i := range r.Rows {
		all.Wait = max(all.Wait, r.Rows[i].Wait)
	}
	g.Footer = add("all "+humanize.Comma(int64(len(r.Rows))), &all)
	for i, figure := range figures {
		if figure.unsummed {
			g.Footer[i+1] = ""
		}
	}
	return g
}

// partOf spells a part, 0 to 1, of a whole.
func partOf(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }
