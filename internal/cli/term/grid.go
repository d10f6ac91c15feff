package term

import (
	"io"
	"strings"

	"github.com/jedib0t/go-pretty/v6/table"
	"github.com/jedib0t/go-pretty/v6/text"
)

// Grid is a table for people: a header, rows and a footer.
type Grid struct {
	Header []string
	// Left has the columns of words; the others hold figures.
	Left   map[int]bool
	Rows   [][]string
	Footer []string
}

// Write writes the table in at most the given columns of text. If it is too wide, its
// widest columns of words are cut first.
func (g *Grid) Write(w io.Writer, columns int) {
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
		io.WriteString(w, line+"\n") //nolint:errcheck // A failure of standard output cannot be reported.
	}
}

// rule is the character of the lines between header, rows and footer.
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

func (g *Grid) columns(available int) []table.ColumnConfig {
	configs := make([]table.ColumnConfig, len(g.Header))
	for i, limit := range g.limits(available) {
		align := text.AlignRight
		if g.Left[i] {
			align = text.AlignLeft
		}
		configs[i] = table.ColumnConfig{
			Number: i + 1, Align: align, AlignHeader: align, AlignFooter: align,
			WidthMax: limit, WidthMaxEnforcer: Clip,
		}
	}
	return configs
}

// leastWords is the least width of a column of words.
const leastWords = 8

// limits returns the columns' widths, cut so that the table fits.
func (g *Grid) limits(available int) []int {
	widths := g.widths()
	for excess := g.Width() - available; excess > 0; excess-- {
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

// Width is how many columns of text the table takes.
func (g *Grid) Width() int {
	all := -2 // the last column's padding is cut
	for _, width := range g.widths() {
		all += width + 2
	}
	return all
}

func (g *Grid) widths() []int {
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
