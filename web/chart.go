package web

import (
	"fmt"
	"strings"
	"time"

	template "github.com/DataDog/datadog-agent/pkg/template/html"
)

// chart shows figures of the last hour: as lines, and as a table behind them.
type chart struct {
	Title, Unit string
	// Since is how long ago the left end is.
	Since string
	Names []string
	// Now are the last values, Top the highest of all.
	Now  []string
	Top  string
	SVG  template.HTML
	Rows []row
}

// row is a line of the table: the last value of each minute.
type row struct {
	Time   string
	Values []string
}

// line is one line of a chart: the text of its name, and its metric.
type line struct {
	name, metric string
	counter      bool
}

const (
	// chartWidth and chartHeight are the size of the drawing, in its own units.
	chartWidth  = 720
	chartHeight = 100
	// least is the least time that a chart shows: that of a server that has just started.
	least = 5 * time.Minute
)

// draw returns the chart of lines that have the same unit.
func (h *history) draw(l *uiLanguage, title, unit string, format func(float64) string, lines ...line) chart {
	c := chart{Title: l.t(title), Unit: l.t(unit)}
	now := time.Now()
	times, all := h.series(lines...)
	top := 0.0
	for i, line := range lines {
		c.Names = append(c.Names, l.t(line.name))
		for _, v := range all[i] {
			top = max(top, v)
		}
	}
	left := now.Add(-least)
	if len(times) > 0 && times[0].Before(left) {
		left = times[0]
	}
	place := func(at time.Time) string {
		return fmt.Sprintf("%.1f", chartWidth*float64(at.Sub(left))/float64(now.Sub(left)))
	}
	c.Top, c.Since = format(top), l.ago(left)
	var svg strings.Builder
	fmt.Fprintf(&svg, `<svg viewBox="0 0 %d %d" preserveAspectRatio="none" aria-hidden="true">`, chartWidth, chartHeight)
	for i, values := range all {
		path := trace(place, times, values, top)
		if i == 0 && path != "" {
			fmt.Fprintf(&svg, `<path class="area" d="%sV%dH%sZ"/>`, path, chartHeight, place(times[0]))
		}
		fmt.Fprintf(&svg, `<path class="s%d" d="%s"/>`, i, path)
		last := 0.0
		if len(values) > 0 {
			last = values[len(values)-1]
		}
		c.Now = append(c.Now, format(last))
	}
	svg.WriteString("</svg>")
	c.SVG = template.HTML(svg.String()) //nolint:gosec // It has only numbers.
	for i := len(times) - 1; i >= 0; i -= int(time.Minute / interval) {
		r := row{Time: times[i].UTC().Format("15:04:05")}
		for _, values := range all {
			r.Values = append(r.Values, format(values[i]))
		}
		c.Rows = append(c.Rows, r)
	}
	return c
}

// trace returns the path of a line.
func trace(place func(time.Time) string, times []time.Time, values []float64, top float64) string {
	var path strings.Builder
	for i, v := range values {
		command := "L"
		if i == 0 {
			command = "M"
		}
		y := float64(chartHeight)
		if top > 0 {
			y -= v / top * (chartHeight - 4)
		}
		fmt.Fprintf(&path, "%s%s %.1f", command, place(times[i]), y)
	}
	return path.String()
}
