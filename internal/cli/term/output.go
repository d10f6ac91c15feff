package term

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"
)

// Output is where one run of a command prints: to people, or with --json to
// programs.
type Output struct {
	JSON bool
	// Out is standard output; Err is for what only people read.
	Out, Err Screen
}

// OutputOf returns the output of a command.
func OutputOf(command *cobra.Command, asJSON bool) Output {
	return Output{JSON: asJSON, Out: ScreenOf(command.OutOrStdout()), Err: ScreenOf(command.ErrOrStderr())}
}

// WriteJSON prints one object on one line.
func (o *Output) WriteJSON(value any) error { return json.NewEncoder(o.Out).Encode(value) }

// Say prints a line to standard error; with --json it prints nothing.
func (o *Output) Say(format string, args ...any) {
	if !o.JSON {
		fmt.Fprintf(o.Err, format+"\n", args...)
	}
}

// Tell prints the outcome of a command: a sentence, or with --json an object.
func (o *Output) Tell(object any, format string, args ...any) error {
	if o.JSON {
		return o.WriteJSON(object)
	}
	fmt.Fprintf(o.Out, format+"\n", args...)
	return nil
}

// Fact is a name and its value.
type Fact [2]string

// Facts prints names and values below one another, without those that have no value. Long values
// are wrapped in their own column if wrap is set.
func (o *Output) Facts(facts []Fact, wrap bool) {
	columns := 0
	if wrap {
		columns = o.Out.Columns()
	}
	WriteFacts(o.Out, facts, columns)
}

// WriteFacts writes facts as Output.Facts does, wrapped to a number of columns (0: not wrapped).
func WriteFacts(w io.Writer, facts []Fact, columns int) {
	facts = slices.DeleteFunc(facts, func(fact Fact) bool { return fact[1] == "" })
	width := 0
	for _, fact := range facts {
		width = max(width, text.StringWidth(fact[0]))
	}
	for _, fact := range facts {
		value := fact[1]
		if columns > 0 {
			value = text.WrapSoft(value, max(columns-width-2, NarrowestView/2))
			value = strings.ReplaceAll(value, " \n", "\n")
			value = strings.ReplaceAll(value, "\n", "\n"+strings.Repeat(" ", width+2))
		}
		fmt.Fprintf(w, "%s  %s\n", Left(fact[0], width), value)
	}
}

// Column is a column of a list of items.
type Column[T any] struct {
	Header string
	// Words reports whether the column has words, which are aligned left; figures
	// are aligned right.
	Words bool
	// Rare reports whether the column is left out where all its cells are empty.
	Rare bool
	Cell func(item *T) string
}

// List prints items: as rows of a table, or with --json as an object per line. If
// there are none, it tells people so: "no rooms".
func List[T any](o *Output, items []T, none string, columns ...Column[T]) error {
	if o.JSON {
		for i := range items {
			if err := o.WriteJSON(&items[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(items) == 0 {
		o.Say("%s", none)
		return nil
	}
	TableOf(items, columns...).Write(o.Out, o.Out.Columns())
	return nil
}

// TableOf returns a table with a row for each item.
func TableOf[T any](items []T, columns ...Column[T]) *Grid {
	g := &Grid{Left: map[int]bool{}}
	columns = slices.DeleteFunc(slices.Clone(columns), func(c Column[T]) bool {
		return c.Rare && !slices.ContainsFunc(items, func(item T) bool { return c.Cell(&item) != "" })
	})
	for i, column := range columns {
		g.Header = append(g.Header, column.Header)
		g.Left[i] = column.Words
	}
	for i := range items {
		g.Rows = append(g.Rows, RowOf(&items[i], columns...))
	}
	return g
}

// RowOf returns the row of an item.
func RowOf[T any](item *T, columns ...Column[T]) []string {
	row := make([]string, len(columns))
	for i, column := range columns {
		row[i] = column.Cell(item)
	}
	return row
}
