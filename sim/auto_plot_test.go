package sim

import (
	"flag"
	"fmt"
	"math"
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "draw docs/bulk/auto.svg again")

const autoPlot = "../docs/bulk/auto.svg"

// The measures of the plot, in pixels: the panels are below one another, each with a title above
// its axes.
const (
	plotWidth, plotLeft, plotRight    = 860, 70, 20
	plotTop, panelTitle, panelHeight  = 56, 30, 120
	panelBottom, plotGrid, plotFactor = 34, 4, 2.2
)

// plotPalette has the colours of the plot, on light and on dark pages.
const plotPalette = `<style>
text{font:13px system-ui,sans-serif;fill:#333}
.small{font-size:11px;fill:#666}
.title{font-weight:600}
.page{fill:#fff}
.grid{stroke:#ddd;stroke-width:1}
.true{stroke:#d97706;stroke-width:2.5;fill:none}
.found{stroke:#2563eb;stroke-width:1.6;fill:none;stroke-linejoin:round}
@media (prefers-color-scheme: dark){
text{fill:#ddd}
.small{fill:#aaa}
.page{fill:#14171c}
.grid{stroke:#333a44}
.true{stroke:#f5a524}
.found{stroke:#6ea8fe}
}
</style>
`

// autoResult is a scenario with the record of its run.
type autoResult struct {
	scenario  *autoScenario
	seconds   []autoSecond
	throttled float64
}

// drawAuto draws the found rate and the true one over time, for each run.
func drawAuto(results []autoResult) string {
	var b strings.Builder
	height := plotTop + len(results)*(panelTitle+panelHeight+panelBottom)
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="The rate found and the true one over time, for five targets">`+"\n",
		plotWidth, height, plotWidth, height)
	b.WriteString(plotPalette)
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%d"/>`+"\n", plotWidth, height)
	for i, key := range []struct{ class, text string }{{"found", "rate found"}, {"true", "what the target bears"}} {
		x := plotLeft + 140*i
		fmt.Fprintf(&b, `<path class="%s" d="M%d 26h26"/><text x="%d" y="30">%s</text>`+"\n", key.class, x, x+34, key.text)
	}
	fmt.Fprintf(&b, `<text class="small" x="%d" y="30" text-anchor="end">attempts per second, over seconds</text>`+"\n", plotWidth-plotRight)
	for i, result := range results {
		drawPanel(&b, result, plotTop+i*(panelTitle+panelHeight+panelBottom))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func drawPanel(b *strings.Builder, result autoResult, top int) {
	seconds, most := result.seconds, 0.0
	for _, second := range seconds {
		most = max(most, second.True*plotFactor)
	}
	width, begins := float64(plotWidth-plotLeft-plotRight), float64(top+panelTitle)
	x := func(second int) float64 { return plotLeft + width*float64(second)/float64(len(seconds)) }
	y := func(rate float64) float64 { return begins + panelHeight*(1-min(rate, most)/most) }
	fmt.Fprintf(b, `<text class="title" x="%d" y="%d">%s</text><text class="small" x="%d" y="%d" text-anchor="end">%.1f %% of the attempts throttled</text>`+"\n",
		plotLeft, top+18, result.scenario.name, plotWidth-plotRight, top+18, 100*result.throttled)
	for line := range plotGrid + 1 {
		rate := most * float64(line) / plotGrid
		fmt.Fprintf(b, `<path class="grid" d="M%d %.1fH%d"/><text class="small" x="%d" y="%.1f" text-anchor="end">%.0f</text>`+"\n",
			plotLeft, y(rate), plotWidth-plotRight, plotLeft-8, y(rate)+4, rate)
	}
	for second := 0; second <= len(seconds); second += 30 {
		fmt.Fprintf(b, `<text class="small" x="%.1f" y="%.1f" text-anchor="middle">%d</text>`+"\n", x(second), begins+panelHeight+16, second)
	}
	for class, rate := range []func(autoSecond) float64{
		func(s autoSecond) float64 { return s.True }, func(s autoSecond) float64 { return s.Found },
	} {
		fmt.Fprintf(b, `<path class="%s" d="`, []string{"true", "found"}[class])
		for i, second := range seconds {
			fmt.Fprintf(b, "%c%.1f %.1fH%.1f", "ML"[min(i, 1)], x(i), y(rate(second)), x(i+1))
		}
		b.WriteString("\"/>\n")
	}
}

// checkPlot compares the plot in the docs with the runs; with -update it draws it.
func checkPlot(t *testing.T, results []autoResult) {
	drawn := drawAuto(results)
	if *update {
		if err := os.WriteFile(autoPlot, []byte(drawn), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	kept, err := os.ReadFile(autoPlot)
	if err != nil {
		t.Fatal(err)
	}
	if !alike(string(kept), drawn) {
		t.Errorf("%s shows other runs than these: draw it again with go test ./sim -run TestAutoFindsTheRate -update", autoPlot)
	}
}

// alike reports whether two plots differ in nothing but numbers, and in these by up to a pixel
// on average: which goroutine a busy processor runs first changes a run a little.
func alike(a, b string) bool {
	numbers := regexp.MustCompile(`\d+(\.\d+)?`)
	if numbers.ReplaceAllString(a, "#") != numbers.ReplaceAllString(b, "#") {
		return false
	}
	x, y := numbers.FindAllString(a, -1), numbers.FindAllString(b, -1)
	var off float64
	for i := range x {
		u, _ := strconv.ParseFloat(x[i], 64) // the expression matches numbers only
		v, _ := strconv.ParseFloat(y[i], 64)
		off += math.Abs(u - v)
	}
	return off <= float64(len(x))
}
