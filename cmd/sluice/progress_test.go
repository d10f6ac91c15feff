package main

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

	"github.com/sluice-project/sluice/bulk"
)

func tenants(count int) []standing {
	lines := make([]standing, count)
	for i := range lines {
		total := int64(100 * (i + 1))
		lines[i] = standing{
			Name: fmt.Sprintf("tenant-%02d", i), Total: total,
			Succeeded: total / 2, Failed: total / 20, InFlight: 1, Throttled: total / 10, Retried: total / 25,
		}
	}
	return lines
}

func momentOf(lines []standing, elapsed time.Duration, rate float64) *moment {
	return &moment{Elapsed: elapsed, Lines: byJobs(lines), All: sum("all", lines), Rate: rate}
}

func TestKeepUnfolded(t *testing.T) {
	for _, test := range []struct{ count, limit, want int }{
		{0, 10, 0}, {5, 10, 5}, {10, 10, 10}, {11, 10, 11}, {12, 10, 10}, {59, 10, 10}, {59, 0, 59}, {2, 1, 2}, {3, 1, 1},
	} {
		if got := keepUnfolded(test.count, test.limit); got != test.want {
			t.Errorf("keepUnfolded(%d, %d) = %d, want %d", test.count, test.limit, got, test.want)
		}
	}
}

func TestBarsGolden(t *testing.T) {
	var out strings.Builder
	for _, view := range []struct {
		title   string
		tenants int
		b       bars
	}{
		{"80 columns, the rest folded", 59, bars{Width: 79, Top: 10}},
		{"one tenant needs no sum", 1, bars{Width: 79, Top: 10}},
		{"40 columns", 5, bars{Width: 40, Top: 2}},
		{"120 columns", 3, bars{Width: 119}},
		{"colours", 2, bars{Width: 79, Paint: true}},
	} {
		out.WriteString("# " + view.title + "\n")
		for _, line := range view.b.Draw(momentOf(tenants(view.tenants), 8200*time.Millisecond, 2391)) {
			out.WriteString(strings.ReplaceAll(line, "\x1b", "ESC") + "\n")
		}
	}
	golden(t, "bars", out.String())
}

// No line is wider than the screen, and the fold loses no job.
func TestBarsFit(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lines := make([]standing, rapid.IntRange(1, 30).Draw(t, "lines"))
		for i := range lines {
			total := rapid.Int64Range(0, 1e9).Draw(t, "total")
			succeeded := rapid.Int64Range(0, total).Draw(t, "succeeded")
			failed := rapid.Int64Range(0, total-succeeded).Draw(t, "failed")
			lines[i] = standing{
				Name:  rapid.String().Draw(t, "name"),
				Total: total, Succeeded: succeeded, Failed: failed, Throttled: succeeded,
			}
		}
		b := bars{Width: rapid.IntRange(narrowestView, 200).Draw(t, "width"), Top: rapid.IntRange(0, 12).Draw(t, "top")}
		m := momentOf(lines, time.Second, 10)
		for _, line := range b.Draw(m) {
			if width := text.StringWidth(line); width > b.Width {
				t.Fatalf("%d columns of %d: %q", width, b.Width, line)
			}
			if !utf8.ValidString(line) || strings.ContainsAny(line, "\n\x1b") {
				t.Fatalf("not fit for a terminal: %q", line)
			}
		}
		if folded := sum("all", b.fold(m.Lines)); folded != m.All {
			t.Fatalf("folded %+v, all are %+v", folded, m.All)
		}
	})
}

func TestBarFillsItsWidth(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		total := rapid.Int64Range(1, 1e9).Draw(t, "total")
		done := rapid.Int64Range(0, total).Draw(t, "done")
		failed := rapid.Int64Range(0, done).Draw(t, "failed")
		width := rapid.IntRange(leastBar, widestBar).Draw(t, "width")
		bar := bars{}.bar(&standing{Total: total, Succeeded: done - failed, Failed: failed}, width)
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
	d := displayOn(screen{Writer: &out, Size: func() (int, int) { return 60, 8 }}, 10)
	d.Show(momentOf(tenants(20), time.Second, 5))
	drawn := strings.Count(out.String(), "\n")
	if drawn > 7 {
		t.Errorf("%d lines on a screen of 8 rows", drawn)
	}
	if !strings.Contains(out.String(), "+16 more") {
		t.Errorf("what does not fit is not folded:\n%s", out.String())
	}
	out.Reset()
	d.Close(momentOf(tenants(20), 2*time.Second, 5))
	if up := fmt.Sprintf("\x1b[%dA\r", drawn); !strings.HasPrefix(out.String(), up) {
		t.Errorf("the second draw does not start over the first: %q", out.String()[:20])
	}
}

func TestLineDisplayGolden(t *testing.T) {
	var out bytes.Buffer
	d := displayOn(screen{Writer: &out}, 10)
	lines := tenants(3)
	for at := time.Duration(0); at < 3*time.Second; at += 300 * time.Millisecond {
		d.Show(momentOf(lines, at, 50))
	}
	d.Close(momentOf(lines, 3*time.Second, 50))
	d.Close(momentOf(lines, 3*time.Second, 50)) // says nothing new
	golden(t, "lines", out.String())
}

func TestScreenWithoutTerminal(t *testing.T) {
	s := screenOf(&bytes.Buffer{})
	if s.Color || s.Size != nil || s.Columns() != defaultColumns {
		t.Errorf("a buffer is no terminal: %+v", s)
	}
}

func TestSpell(t *testing.T) {
	for d, want := range map[time.Duration]string{
		-1: "–", 0: "0ms", 40 * time.Millisecond: "40ms", 3290 * time.Millisecond: "3.2s",
		59990 * time.Millisecond: "59.9s", 65 * time.Second: "1m05s", 2*time.Hour + 3*time.Minute: "2h03m",
	} {
		if got := spell(d); got != want {
			t.Errorf("spell(%d) = %q, want %q", d, got, want)
		}
	}
}

func TestSpellMS(t *testing.T) {
	for ms, want := range map[json.Number]string{
		"0.00108": "1.08µs", "5.831493": "5.83ms", "150": "150ms", "12345.6": "12.3s", "0": "0s", "": "",
	} {
		if got := spellMS(ms); got != want {
			t.Errorf("spellMS(%s) = %s, want %s", ms, got, want)
		}
	}
}

func TestPrintable(t *testing.T) {
	for s, want := range map[string]string{
		"plain": "plain", "two\nlines": "two lines", "\x1b[31mred": "[31mred", "bad\xffutf": "bad\ufffdutf",
		" a\t\tb ": "a b", "\u202eevil": "evil", "Österreich": "Österreich",
	} {
		if got := printable(s); got != want {
			t.Errorf("printable(%q) = %q, want %q", s, got, want)
		}
	}
}

func TestRateMeter(t *testing.T) {
	var r rateMeter
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

func TestTrackerWaitAndHalf(t *testing.T) {
	start := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
	action := func(done int64) bulk.Action {
		return bulk.Action{
			Spec: bulk.Spec{Tenant: "t"}, Status: bulk.Running, Total: 1_000_000, EnteredAt: start,
			Counts: bulk.Counts{Received: 1_000_000, Succeeded: done},
		}
	}
	tracked := newTracker(start, 2)
	for i := range int64(4000) {
		tracked.Observe(start.Add(time.Duration(i)*time.Second), []bulk.Action{action(i), action(2 * max(0, i-1000))})
	}
	if len(tracked.samples) > mostSamples {
		t.Fatalf("%d samples are kept", len(tracked.samples))
	}
	for _, at := range []int64{10, 100, 500, 3000} {
		got := tracked.DoneAt(start.Add(time.Duration(at) * time.Second))
		if want := float64(at); got[0] < want-1 || got[0] > want+1 {
			t.Errorf("done at %d s: %v, want %g", at, got, want)
		}
	}
	first, second := action(4000), action(6000)
	if got := tracked.Wait(0, &first); got != time.Second {
		t.Errorf("wait %s, want 1s", got)
	}
	if got := tracked.Wait(1, &second); got != 1001*time.Second {
		t.Errorf("wait %s, want 1001s", got)
	}
	second.FinishedAt = start.Add(7 * time.Second)
	if got := tracked.Wait(1, &second); got != 7*time.Second {
		t.Errorf("wait %s of an action that ended between two looks, want 7s", got)
	}
}
