package term

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"time"
	"unicode"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"
)

func When(t, now time.Time) string { return t.UTC().Format(time.RFC3339) + ", " + Ago(now, t) }

// Ago formats how long ago a time was.
func Ago(now, then time.Time) string { return Spell(max(now.Sub(then), 0)) + " ago" }

// Paint colours text for a terminal, or leaves it as it is.
type Paint bool

func (p Paint) With(color text.Color, s string) string {
	if !p || s == "" {
		return s
	}
	// Not color.Sprint: that consults a setting of the whole process.
	return fmt.Sprintf("\x1b[%dm%s\x1b[0m", int(color), s)
}

// Printable makes foreign text safe for one line of a terminal: each run of
// characters that are not printable becomes a space.
func Printable(s string) string {
	clean := strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return ' '
		}
		return r
	}, s)
	return strings.Join(strings.Fields(clean), " ")
}

// Clip shortens text to a number of columns.
func Clip(s string, columns int) string {
	if columns <= 0 {
		return ""
	}
	return text.Snip(s, columns, "…")
}

// Left and right pad text to a number of columns.
func Left(s string, columns int) string { return text.Pad(s, columns, ' ') }

func Right(s string, columns int) string { return text.AlignRight.Apply(s, columns) }

// Counted formats a count: "1 job", "2,670 jobs".
func Counted(n int64, noun string) string { return Plural(n, noun, noun+"s") }

// Percent formats a part of a whole. It rounds down, so 100 % means all.
func Percent(part, whole int64) string {
	if whole <= 0 {
		return "–"
	}
	return fmt.Sprintf("%d %%", part*100/whole)
}

// Spell formats a duration for people: 40ms, 3.2s, 1m05s, 2h03m.
func Spell(d time.Duration) string {
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

// PerSecond formats a rate.
func PerSecond(rate float64) string {
	if rate < 10 {
		return fmt.Sprintf("%.1f/s", rate)
	}
	return humanize.Comma(int64(rate+0.5)) + "/s"
}

// SpellMS formats milliseconds with three digits: 1.08µs, 41.3ms.
func SpellMS(ms json.Number) string {
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

// LongestName is the most columns of a tenant's name in a table.
const LongestName = 24

func Plural(n int64, one, many string) string {
	if n == 1 {
		return "1 " + one
	}
	return humanize.Comma(n) + " " + many
}

// Numbers spells a list of brokers.
func Numbers(list []int32) string {
	var texts []string
	for _, number := range list {
		texts = append(texts, strconv.Itoa(int(number)))
	}
	return strings.Join(texts, ",")
}

// Name returns the name of a tenant for a cell of a table.
func Name(s string) string { return Clip(Printable(s), LongestName) }

// If returns the text if the condition holds, and otherwise nothing.
func If(condition bool, text string) string {
	if condition {
		return text
	}
	return ""
}

// Or formats a value, or returns none where there is no value.
func Or[T any](value *T, none string, format func(T) string) string {
	if value == nil {
		return none
	}
	return format(*value)
}
