package engine

import (
	"flag"
	"fmt"
	"math"
	"slices"
	"strings"
)

var updatePlot = flag.Bool("update-plot", false, "draw docs/room/auto.svg again")

// plotted is a second of a shop: the capacity that was found, what the shop holds, and the p95 of
// its requests in times of that without load.
type plotted struct{ found, holds, p95 float64 }

// drawAuto draws the capacity and the delays over time.
func drawAuto(seconds []plotted) string {
	const width, height, left, top, gap = 760, 150, 60, 40, 50
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" role="img" aria-label="The capacity that was found and the delays of requests, for an upstream that halves and recovers">`+"\n", left+width+20, 2*(height+gap)+top)
	b.WriteString(`<style>text{font:13px system-ui,sans-serif;fill:#333}.page{fill:#fff}.grid{stroke:#ddd}.line{fill:none;stroke-width:1.8;stroke-linejoin:round}` +
		`@media (prefers-color-scheme: dark){text{fill:#ddd}.page{fill:#14171c}.grid{stroke:#333a44}}</style>` + "\n")
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%d"/>`+"\n", left+width+20, 2*(height+gap)+top)
	panel := func(y int, title string, most, step float64, lines map[string]func(plotted) float64) {
		fmt.Fprintf(&b, `<text x="%d" y="%d" font-weight="600">%s</text>`+"\n", left, y-12, title)
		at := func(v float64) float64 { return float64(y) + height*(1-math.Min(v, most)/most) }
		for v := 0.0; v <= most; v += step {
			fmt.Fprintf(&b, `<path class="grid" d="M%d %.1fh%d"/><text x="%d" y="%.1f" text-anchor="end">%g</text>`+"\n", left, at(v), width, left-8, at(v)+4, v)
		}
		for _, colour := range slices.Backward([]string{"#2563eb", "#d97706"}) {
			of := lines[colour]
			if of == nil {
				continue
			}
			var path strings.Builder
			for i, s := range seconds {
				fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(i, 1)], left+float64(i)*width/float64(len(seconds)), at(of(s)))
			}
			fmt.Fprintf(&b, `<path class="line" stroke="%s" d="%s"/>`+"\n", colour, path.String())
		}
	}
	panel(top, "visitors inside: found (blue), and what the upstream holds", 1400, 350, map[string]func(plotted) float64{
		"#2563eb": func(s plotted) float64 { return s.found }, "#d97706": func(s plotted) float64 { return s.holds },
	})
	panel(top+height+gap, "p95 of a request, in times of that without load (over 15 s; the halving cuts off at 4)", 4, 1, map[string]func(plotted) float64{
		"#2563eb": func(s plotted) float64 { return s.p95 },
	})
	for _, s := range []int{0, 300, 600, 900} {
		fmt.Fprintf(&b, `<text x="%.1f" y="%d" text-anchor="middle">%d s</text>`+"\n", left+float64(s)*width/900, top+2*height+gap+22, s)
	}
	return b.String() + "</svg>\n"
}

// plot returns the seconds that a shop has recorded.
func (s *shop) plot(unloaded float64) (seconds []plotted) {
	for i, second := range s.seconds {
		recent := slices.Sorted(slices.Values(s.delays[s.seconds[max(0, i-15)].delays:second.delays]))
		point := plotted{second.capacity, second.holds, 0}
		if len(recent) > 0 {
			point.p95 = recent[len(recent)*95/100] / unloaded
		}
		seconds = append(seconds, point)
	}
	return seconds
}
