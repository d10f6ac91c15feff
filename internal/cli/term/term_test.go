package term

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/jedib0t/go-pretty/v6/text"
	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/internal/cli/clitest"
)

func tenants(count int) []Standing {
	lines := make([]Standing, count)
	for i := range lines {
		total := int64(100 * (i + 1))
		lines[i] = Standing{
			Name: fmt.Sprintf("tenant-%02d", i), Total: total,
			Succeeded: total / 2, Failed: total / 20, InFlight: 1, Throttled: total / 10, Retried: total / 25,
		}
	}
	return lines
}

func momentOf(lines []Standing, elapsed time.Duration, rate float64) *Moment {
	return &Moment{Elapsed: elapsed, Lines: ByJobs(lines), All: Sum("all", lines), Rate: rate}
}

func TestKeepUnfolded(t *testing.T) {
	for _, test := range []struct{ count, limit, want int }{
		{0, 10, 0}, {5, 10, 5}, {10, 10, 10}, {11, 10, 11}, {12, 10, 10}, {59, 10, 10}, {59, 0, 59}, {2, 1, 2}, {3, 1, 1},
	} {
		if got := KeepUnfolded(test.count, test.limit); got != test.want {
			t.Errorf("keepUnfolded(%d, %d) = %d, want %d", test.count, test.limit, got, test.want)
		}
	}
}

func TestBarsGolden(t *testing.T) {
	var out strings.Builder
	for _, view := range []struct {
		title   string
		tenants int
		b       Bars
	}{
		{"80 columns, the rest folded", 59, Bars{Width: 79, Top: 10}},
		{"one tenant needs no sum", 1, Bars{Width: 79, Top: 10}},
		{"40 columns", 5, Bars{Width: 40, Top: 2}},
		{"120 columns", 3, Bars{Width: 119}},
		{"colours", 2, Bars{Width: 79, Paint: true}},
	} {
		out.WriteString("# " + view.title + "\n")
		for _, line := range view.b.Draw(momentOf(tenants(view.tenants), 8200*time.Millisecond, 2391)) {
			out.WriteString(strings.ReplaceAll(line, "\x1b", "ESC") + "\n")
		}
	}
	clitest.Golden(t, "bars", out.String())
}

// No line is wider than the screen, and the fold loses no job.
func TestBarsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := make([]Standing, rapid.IntRange(1, 30).Draw(t, "lines"))
		for i := range lines {
			total := rapid.Int64Range(0, 1e9).Draw(t, "total")
			succeeded := rapid.Int64Range(0, total).Draw(t, "succeeded")
			failed := rapid.Int64Range(0, total-succeeded).Draw(t, "failed")
			lines[i] = Standing{
				Name:  rapid.String().Draw(t, "name"),
				Total: total, Succeeded: succeeded, Failed: failed, Throttled: succeeded,
			}
		}
		b := Bars{Width: rapid.IntRange(NarrowestView, 200).Draw(t, "width"), Top: rapid.IntRange(0, 12).Draw(t, "top")}
		m := momentOf(lines, time.Second, 10)
		for _, line := range b.Draw(m) {
			if width := text.StringWidth(line); width > b.Width {
				t.Fatalf("%d columns of %d: %q", width, b.Width, line)
			}
			if !utf8.ValidString(line) || strings.ContainsAny(line, "\n\x1b") {
				t.Fatalf("not fit for a terminal: %q", line)
			}
		}
		if folded := Sum("all", b.fold(m.Lines)); folded != m.All {
			t.Fatalf("folded %+v, all are %+v", folded, m.All)
		}
	})
}

func TestBarFillsItsWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 1e9).Draw(t, "total")
		done := rapid.Int64Range(0, total).Draw(t, "done")
		failed := rapid.Int64Range(0, done).Draw(t, "failed")
		width := rapid.IntRange(LeastBar, WidestBar).Draw(t, "width")
		bar := Bars{}.Bar(&Standing{Total: total, Succeeded: done - failed, Failed: failed}, width)
		if got := text.StringWidth(bar); got != width {
			t.Fatalf("%d columns of %d: %q", got, width, bar)
		}
		if full := !strings.Contains(bar, "░") && !strings.ContainsAny(bar, strings.Join(eighths[1:], "")); full != (done == total) {
			t.Fatalf("%d of %d done: %q", done, total, bar)
		}
	})
}

func TestBarDisplayRedraws(t *testing.T) {
	var out bytes.Buffer
	d := DisplayOn(Screen{Writer: &out, Size: func() (int, int) { return 60, 8 }}, 10, false)
	d.Show(momentOf(tenants(20), time.Second, 5))
	drawn := strings.Count(out.String(), "\n")
	if drawn > 7 {
		t.Errorf("%d lines on a screen of 8 rows", drawn)
	}
	if !strings.Contains(out.String(), "+16 more") {
		t.Errorf("what does not fit is not folded:\n%s", out.String())
	}
	out.Reset()
	d.Show(momentOf(tenants(20), 2*time.Second, 5))
	if up := fmt.Sprintf("\x1b[%dA\r", drawn); !strings.HasPrefix(out.String(), up) {
		t.Errorf("the second draw does not start over the first: %q", out.String()[:20])
	}
}

func TestLineDisplayGolden(t *testing.T) {
	var out bytes.Buffer
	d := DisplayOn(Screen{Writer: &out}, 10, false)
	lines := tenants(3)
	for at := time.Duration(0); at < 3*time.Second; at += 300 * time.Millisecond {
		d.Show(momentOf(lines, at, 50))
	}
	d.Show(momentOf(lines, 3*time.Second, 50))
	d.Close()
	d.Close() // prints nothing new
	clitest.Golden(t, "lines", out.String())
}

func TestScreenWithoutTerminal(t *testing.T) {
	s := ScreenOf(&bytes.Buffer{})
	if s.Color || s.Size != nil || s.Columns() != defaultColumns {
		t.Errorf("a buffer is no terminal: %+v", s)
	}
}

func TestSpell(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "–", 0: "0ms", 40 * time.Millisecond: "40ms", 3290 * time.Millisecond: "3.2s",
		59990 * time.Millisecond: "59.9s", 65 * time.Second: "1m05s", 2*time.Hour + 3*time.Minute: "2h03m",
	} {
		if got := Spell(d); got != want {
			t.Errorf("spell(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestSpellMS(t *testing.T) {
	for ms, want := range map[json.Number]string{
		"0.00108": "1.08µs", "5.831493": "5.83ms", "150": "150ms", "12345.6": "12.3s", "0": "0s", "": "",
	} {
		if got := SpellMS(ms); got != want {
			t.Errorf("spellMS(%s) = %s, want %s", ms, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"plain", "plain"}, {"two\nlines", "two lines"}, {"\x1b[31mred", "[31mred"}, {"bad\xffutf", "bad\ufffdutf"},
		{" a\t\tb ", "a b"}, {"\u202eevil", "evil"}, {"Österreich", "Österreich"},
	} {
		if got := Printable(c.text); got != c.want {
			t.Errorf("printable(%q) = %q, want %q", c.text, got, c.want)
		}
	}
}

func TestRateMeter(t *testing.T) {
	var r RateMeter
	if got := r.Read(0, 0); got != 0 {
		t.Errorf("the first reading tells no rate, got %g", got)
	}
	for second := range 20 {
		r.Read(time.Duration(second)*time.Second, int64(second)*100)
	}
	if got := r.Read(20*time.Second, 2000); got != 100 {
		t.Errorf("rate %g, want 100", got)
	}
	if got := r.Read(23*time.Second, 2000); got != 0 {
		t.Errorf("rate %g after %s of standing still, want 0", got, rateSpan)
	}
	if len(r.at) > 5 {
		t.Errorf("%d readings are kept", len(r.at))
	}
}
