package report

import (
	"fmt"
	"io"
	"slices"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/internal/cli/term"
)

// tenantColumns are in the order of the table.
var tenantColumns = []term.Column[ReportRow]{
	{Header: "tenant", Words: true, Cell: func(r *ReportRow) string { return term.Name(r.Name) }},
	{Header: "jobs", Cell: func(r *ReportRow) string { return humanize.Comma(r.Total) }},
	{Header: "ok", Cell: func(r *ReportRow) string { return humanize.Comma(r.Succeeded) }},
	{Header: "failed", Cell: func(r *ReportRow) string { return humanize.Comma(r.Failed) }},
	{Header: "throttled", Cell: func(r *ReportRow) string { return humanize.Comma(r.Throttled) }},
	{Header: "wait", Cell: func(r *ReportRow) string { return term.Spell(r.Wait) }},
	{Header: "elapsed", Cell: func(r *ReportRow) string { return term.Spell(r.Elapsed) }},
	{Header: "1st half", Cell: func(r *ReportRow) string { return PartOf(r.Half) }},
	{Header: "fair", Cell: func(r *ReportRow) string { return PartOf(r.Fair) }},
}

// TenantTable writes the result of each tenant. If the screen is too narrow for the names of
// tenants, the rightmost columns are left out.
func (r *Run) TenantTable(w io.Writer, columns, top int) {
	for count := len(tenantColumns); ; count-- {
		g := r.tenantGrid(tenantColumns[:count], top)
		if count == 5 || g.Width() <= columns {
			g.Write(w, columns)
			return
		}
	}
}

func (r *Run) tenantGrid(columns []term.Column[ReportRow], top int) *term.Grid {
	rows, rest, folded := r.fold(top)
	g := term.TableOf(rows, columns...)
	if rest != nil {
		rest.Name = fmt.Sprintf("+%s more", humanize.Comma(int64(folded)))
		g.Rows = append(g.Rows, term.RowOf(rest, columns...))
	}
	if len(r.Rows) < 2 {
		return g
	}
	all := ReportRow{Standing: r.All, Wait: -1, Elapsed: r.Makespan, Half: -1, Fair: -1} // a sum of shares has no meaning
	all.Name = "all " + humanize.Comma(int64(len(r.Rows)))
	for i := range r.Rows {
		all.Wait = max(all.Wait, r.Rows[i].Wait)
	}
	g.Footer = term.RowOf(&all, columns...)
	return g
}

// PartOf formats a part, 0 to 1, of a whole; nothing if it is below 0.
func PartOf(part float64) string { return term.If(part >= 0, fmt.Sprintf("%.1f %%", 100*part)) }

// UnfinishedTable lists the tenants with unfinished jobs.
func UnfinishedTable(w io.Writer, lines []term.Standing, columns, top int) {
	open := slices.DeleteFunc(slices.Clone(lines), func(s term.Standing) bool { return s.Done() == s.Total })
	if keep := term.KeepUnfolded(len(open), top); keep < len(open) {
		open = append(open[:keep:keep], term.Sum(fmt.Sprintf("+%d more", len(open)-keep), open[keep:]))
	}
	type column = term.Column[term.Standing]
	term.TableOf(open,
		column{Header: "tenant", Words: true, Cell: func(s *term.Standing) string { return term.Name(s.Name) }},
		column{Header: "jobs", Cell: func(s *term.Standing) string { return humanize.Comma(s.Total) }},
		column{Header: "finished", Cell: func(s *term.Standing) string { return humanize.Comma(s.Done()) }},
		column{Header: "in flight", Cell: func(s *term.Standing) string { return humanize.Comma(s.InFlight) }},
		column{Header: "unfinished", Cell: func(s *term.Standing) string { return humanize.Comma(s.Total - s.Done()) }},
	).Write(w, columns)
}
