package engine_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"
)

var update = flag.Bool("update", false, "draw docs/bulk/time-share.svg again")

// The measures of the plot, in pixels: two panels beside one another.
const (
	shareWidth, shareHeight, shareGap    = 390, 220, 60
	shareLeft, shareTop, shareKeys       = 50, 40, 90
	sharesDown, sharesAcross, shareTicks = 4, 2, 10
)

// shareLines are the neighbours that the plot shows, with their colours.
var shareLines = []struct{ crowd, colour, text string }{
	{"nobody", "#9ca3af", "nobody"},
	{"one that hangs", "#2563eb", "one tenant whose target hangs"},
	{"one that begins to hang", "#d97706", "one whose target hangs after 10 s"},
	{"ten that hang and come later", "#16a34a", "ten whose targets hang, from the second second on"},
}

// sharePlot collects how many jobs of a tenant end in each second, by panel and neighbours, and
// draws them when the test has ended, if it runs with -update. Runs differ a little.
type sharePlot struct {
	mu sync.Mutex
	of map[[2]string]perSecond
}

func newSharePlot(t *testing.T) *sharePlot {
	p := &sharePlot{of: map[[2]string]perSecond{}}
	t.Cleanup(func() {
		if !*update {
			return
		}
		if err := os.WriteFile("../../docs/bulk/time-share.svg", []byte(p.draw()), 0o644); err != nil {
			t.Error(err)
		}
	})
	return p
}

func (p *sharePlot) add(panel, crowd string, ended perSecond) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.of[[2]string{panel, crowd}] = ended
}

func (p *sharePlot) draw() string {
	var b strings.Builder
	width, height := shareLeft+sharesAcross*(shareWidth+shareGap), shareTop+shareHeight+shareKeys
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="Jobs a second of a tenant beside others whose targets hang">`+"\n", width, height, width, height)
	b.WriteString(`<style>text{font:12px system-ui,sans-serif;fill:#333}.page{fill:#fff}.grid{stroke:#ddd}.line{fill:none;stroke-width:2;stroke-linejoin:round}` +
		`@media (prefers-color-scheme: dark){text{fill:#ddd}.page{fill:#14171c}.grid{stroke:#333a44}}</style>` + "\n")
	fmt.Fprintf(&b, `<rect class="page" width="%d" height="%d"/>`+"\n", width, height)
	p.panel(&b, "workers", "ten workers", shareLeft, 240)
	p.panel(&b, "webhooks", "webhooks, 20 at a time", shareLeft+shareWidth+shareGap, 480)
	for i, line := range shareLines {
		y := shareTop + shareHeight + 36 + 14*i
		fmt.Fprintf(&b, `<path class="line" stroke="%s" d="M%d %dh24"/><text x="%d" y="%d">beside %s</text>`+"\n", line.colour, shareLeft, y-4, shareLeft+32, y, line.text)
	}
	b.WriteString("</svg>\n")
	return b.String()
}

func (p *sharePlot) panel(b *strings.Builder, panel, title string, left, most int) {
	y := func(n int) float64 { return shareTop + shareHeight*(1-float64(n)/float64(most)) }
	fmt.Fprintf(b, `<text x="%d" y="20" font-weight="600">%s: jobs a second, over seconds</text>`+"\n", left, title)
	for i := range sharesDown + 1 {
		n := most * i / sharesDown
		fmt.Fprintf(b, `<path class="grid" d="M%d %.1fh%d"/><text x="%d" y="%.1f" text-anchor="end">%d</text>`+"\n", left, y(n), shareWidth, left-6, y(n)+4, n)
	}
	seconds := len(perSecond{})
	x := func(second int) float64 { return float64(left) + shareWidth*float64(second)/float64(seconds) }
	for second := 0; second < seconds; second += shareTicks {
		fmt.Fprintf(b, `<text x="%.1f" y="%d" text-anchor="middle">%d</text>`+"\n", x(second), shareTop+shareHeight+16, second)
	}
	for _, line := range shareLines {
		fmt.Fprintf(b, `<path class="line" stroke="%s" d="`, line.colour)
		for second, n := range p.of[[2]string{panel, line.crowd}] {
			fmt.Fprintf(b, "%c%.1f %.1f", "ML"[min(second, 1)], x(second)+shareWidth/float64(seconds)/2, y(n))
		}
		b.WriteString("\"/>\n")
	}
}
