package web

import (
	"encoding/base64"
	"math"
	"strconv"
	"strings"
	"time"
	"unicode/utf8"
)

// number groups digits by thousands.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	sign := ""
	if n < 0 {
		sign, digits = "-", digits[1:]
	}
	for i := len(digits) - 3; i > 0; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return sign + digits
}

// decimal has a digit after the point below ten, two below one.
func decimal(f float64) string {
	switch {
	case f != 0 && math.Abs(f) < 1:
		return strconv.FormatFloat(f, 'f', 2, 64)
	case math.Abs(f) < 10 && f != math.Trunc(f):
		return strconv.FormatFloat(f, 'f', 1, 64)
	}
	return number(int64(math.Round(f)))
}

// size is a number of bytes in binary units.
func size(bytes int64) string {
	const units = "KMGTPE"
	if bytes < 1024 {
		return number(bytes) + " B"
	}
	f, unit := float64(bytes)/1024, 0
	for f >= 1024 && unit < len(units)-1 {
		f, unit = f/1024, unit+1
	}
	return decimal(f) + " " + units[unit:unit+1] + "iB"
}

// percent is a part of a whole; it rounds down, so that only all is 100 %.
func percent(part, whole int64) string {
	if whole <= 0 {
		return "–"
	}
	return strconv.FormatInt(100*part/whole, 10) + " %"
}

// span is a duration in its greatest unit, or two below ten of that.
func (l *uiLanguage) span(d time.Duration) string {
	d = d.Abs()
	switch {
	case d < time.Second:
		return l.t("unit.ms", d.Milliseconds())
	case d < 2*time.Minute:
		return l.t("unit.s", int64(d.Round(time.Second).Seconds()))
	case d < 2*time.Hour:
		return l.t("unit.min", int64(d.Round(time.Minute).Minutes()))
	case d < 48*time.Hour:
		return l.t("unit.h", int64(d.Round(time.Hour).Hours()))
	}
	return l.t("unit.d", int64(d.Round(24*time.Hour).Hours()/24))
}

// ago is how long ago a time was, or in how long it will be; "–" for none.
func (l *uiLanguage) ago(at time.Time) string {
	switch d := time.Since(at); {
	case at.IsZero():
		return "–"
	case d < 0:
		return l.t("time.in", l.span(d))
	default:
		return l.t("time.ago", l.span(d))
	}
}

func clock(at time.Time) string {
	if at.IsZero() {
		return "–"
	}
	return at.UTC().Format("2006-01-02 15:04:05") + " UTC"
}

// shownBytes bounds how much of one text a page shows.
const shownBytes = 2 << 10

// content is a text of a part as a page shows it.
type content struct {
	Text string
	// Base64 reports that the text is binary, and Cut how many bytes were left out; Nil that there
	// is none, which differs from an empty one.
	Base64, Nil bool
	Cut         int64
}

func show(text []byte) content {
	c := content{Nil: text == nil, Cut: int64(max(0, len(text)-shownBytes))}
	text = text[:min(len(text), shownBytes)]
	if c.Cut > 0 { // a character may be cut
		for i := 0; i < utf8.UTFMax-1 && !utf8.Valid(text) && len(text) > 0; i++ {
			text = text[:len(text)-1]
			c.Cut++
		}
	}
	c.Base64 = !utf8.Valid(text) || strings.ContainsFunc(string(text), control)
	c.Text = string(text)
	if c.Base64 {
		c.Text = base64.StdEncoding.EncodeToString(text)
	}
	return c
}

// control reports whether a character is neither shown nor white space.
func control(r rune) bool { return r < ' ' && r != '\n' && r != '\r' && r != '\t' || r == 0x7f }
