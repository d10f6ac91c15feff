package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"
)

// paint colours text for a terminal, or leaves it as it is.
type paint bool

func (p paint) with(color text.Color, s string) string {
	if !p || s == "" {
		return s
	}
	// Not color.Sprint: that consults a setting of the whole process.
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", int(color), s)
}

// printable makes text from outside fit for one line of a terminal: everything
// that is not a printable character becomes a space, runs of them one.
func printable(s string) string {
	clean := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(clean), " ")
}

// clip shortens text to a number of columns.
func clip(s string, columns int) string {
	if columns <= 0 {
		return ""
	}
	return text.Snip(s, columns, "…")
}

// left and right pad text to a number of columns.
func left(s string, columns int) string  { return text.Pad(s, columns, ' ') }
func right(s string, columns int) string { return text.AlignRight.Apply(s, columns) }

// counted spells "1 job", "2,670 jobs".
func counted(n int64, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return humanize.Comma(n) + " " + noun + "s"
}

// percent spells a part of a whole. It rounds down, so that 100 % is all.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "–"
	}
	return fmt.Sprintf("%d %%", part*100/whole)
}

// spell writes a duration as people read it: 40ms, 3.2s, 1m05s, 2h03m.
func spell(d time.Duration) string {
	switch {
	case d < 0:
		return "–"
	case d < time.Second:
		return fmt.Sprintf("%dms", d.Milliseconds())
	case d < time.Minute:
		return fmt.Sprintf("%.1fs", d.Truncate(100*time.Millisecond).Seconds())
	case d < time.Hour:
		return fmt.Sprintf("%dm%02ds", int(d.Minutes()), int(d.Seconds())%60)
	default:
		return fmt.Sprintf("%dh%02dm", int(d.Hours()), int(d.Minutes())%60)
	}
}

// perSecond spells a rate.
func perSecond(rate float64) string {
	if rate < 10 {
		return fmt.Sprintf("%.1f/s", rate)
	}
	return humanize.Comma(int64(rate+0.5)) + "/s"
}

// spellMS writes a number of milliseconds with three digits: 1.08µs, 41.3ms.
func spellMS(ms json.Number) string {
	value, err := ms.Float64()
	if err != nil {
		return ms.String()
	}
	d := time.Duration(value * float64(time.Millisecond))
	unit := time.Nanosecond
	for d/unit >= 1000 {
		unit *= 10
	}
	return d.Round(unit).String()
}
