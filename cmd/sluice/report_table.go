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
// its last column of words.
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
	widths := g.widths()
	excess := -available - 2 // the last column's padding is cut
	for _, width := range widths {
		excess += width + 2
	}
	for i := len(configs) - 1; i >= 0; i-- {
		configs[i] = table.ColumnConfig{Number: i + 1, Align: text.AlignRight, AlignHeader: text.AlignRight, AlignFooter: text.AlignRight}
		if !g.Left[i] {
			continue
		}
		configs[i].Align, configs[i].AlignHeader, configs[i].AlignFooter = text.AlignLeft, text.AlignLeft, text.AlignLeft
		if excess > 0 {
			limit := max(widths[i]-excess, 8)
			excess -= widths[i] - limit
			configs[i].WidthMax = limit
			configs[i].WidthMaxEnforcer = clip
		}
	}
	return configs
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

// tenantTable writes what became of each tenant.
func (r *report) tenantTable(w io.Writer, columns, top int) {
	g := grid{
		Header: []string{"tenant", "jobs", "succeeded", "failed", "throttled", "wait", "elapsed", "1st half", "fair"},
		Left:   map[int]bool{0: true},
	}
	rows, rest, folded := r.fold(top)
	for i := range rows {
		g.Rows = append(g.Rows, tenantRow(clip(printable(rows[i].Name), 24), &rows[i]))
	}
	if rest != nil {
		g.Rows = append(g.Rows, tenantRow(fmt.Sprintf("+%s more", humanize.Comma(int64(folded))), rest))
	}
	if len(r.Rows) > 1 {
		all := reportRow{standing: r.All, Wait: -1, Elapsed: r.Makespan}
		for i := range r.Rows {
			all.Wait = max(all.Wait, r.Rows[i].Wait)
		}
		g.Footer = tenantRow("all "+humanize.Comma(int64(len(r.Rows))), &all)
		g.Footer[7], g.Footer[8] = "", ""
	}
	g.Write(w, columns)
}

func tenantRow(name string, row *reportRow) []string {
	return []string{
		name, humanize.Comma(row.Total), humanize.Comma(row.Succeeded), humanize.Comma(row.Failed),
		humanize.Comma(row.Throttled), spell(row.Wait), spell(row.Elapsed), share(row.Half), share(row.Fair),
	}
}

func share(part float64) string { return fmt.Sprintf("%.1f %%", 100*part) }
