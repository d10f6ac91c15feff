package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"html"
	"io"
	"os"
	"strings"
	"unicode/utf8"
)

func main() {
	title := flag.String("title", "", "what the terminal's title bar says, and the image's description")
	flag.Parse()
	if err := draw(os.Stdin, os.Stdout, *title); err != nil {
		fmt.Fprintln(os.Stderr, "termsvg:", err)
		os.Exit(1)
	}
}

// Sizes in pixels. A character of a monospaced font is about 0.6 of its height wide.
const (
	fontSize   = 13
	charWidth  = 7.85
	lineHeight = 18
	margin     = 16
	titleBar   = 32
	maxLines   = 200
)

const style = `text{font:13px ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace;fill:#24292f;white-space:pre}
.title{font-weight:600}
.good{fill:#1a7f37}
.bad{fill:#cf222e}
.rule{fill:#8c959f}
.window{fill:#f6f8fa;stroke:#d0d7de}
@media (prefers-color-scheme: dark){
text{fill:#e6edf3}
.good{fill:#3fb950}
.bad{fill:#f85149}
.rule{fill:#6e7681}
.window{fill:#0d1117;stroke:#30363d}
}`

// draw reads at most 200 lines of text and writes an image of them.
func draw(text io.Reader, image io.Writer, title string) error {
	lines, columns, err := readLines(text)
	if err != nil {
		return err
	}
	width := int(float64(columns)*charWidth) + 2*margin
	height := titleBar + len(lines)*lineHeight + 2*margin
	out := bufio.NewWriter(image)
	fmt.Fprintf(out, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" width="%d" height="%d" role="img" aria-label="%s">`+"\n",
		width, height, width, height, html.EscapeString(title))
	fmt.Fprintf(out, "<style>\n%s\n</style>\n", style)
	fmt.Fprintf(out, `<rect class="window" x="0.5" y="0.5" width="%d" height="%d" rx="8"/>`+"\n", width-1, height-1)
	fmt.Fprintf(out, `<text class="title" x="%d" y="%d">%s</text>`+"\n", margin, titleBar/2+fontSize/2, html.EscapeString(title))
	for i, line := range lines {
		if line != "" {
			fmt.Fprintf(out, `<text x="%d" y="%d">%s</text>`+"\n", margin, titleBar+margin+i*lineHeight+fontSize, paint(line))
		}
	}
	fmt.Fprintln(out, "</svg>")
	return out.Flush()
}

// readLines returns the lines without trailing spaces and without empty lines at both
// ends, and the length of the longest in characters.
func readLines(text io.Reader) (lines []string, columns int, err error) {
	scanner := bufio.NewScanner(text)
	for scanner.Scan() {
		line := strings.TrimRight(strings.ReplaceAll(scanner.Text(), "\t", "    "), " ")
		if line == "" && len(lines) == 0 {
			continue
		}
		lines = append(lines, line)
		columns = max(columns, utf8.RuneCountInString(line))
		if len(lines) > maxLines {
			return nil, 0, fmt.Errorf("want at most %d lines", maxLines)
		}
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	if scanner.Err() == nil && len(lines) == 0 {
		return nil, 0, errors.New("no text on standard input")
	}
	return lines, columns, scanner.Err()
}

// paint escapes a line and colours check marks, crosses and rules.
func paint(line string) string {
	line = html.EscapeString(line)
	if strings.Trim(line, "─") == "" {
		return `<tspan class="rule">` + line + `</tspan>`
	}
	line = strings.ReplaceAll(line, "✓", `<tspan class="good">✓</tspan>`)
	return strings.ReplaceAll(line, "✗", `<tspan class="bad">✗</tspan>`)
}
