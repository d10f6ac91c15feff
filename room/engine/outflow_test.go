package engine

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/sluice-project/sluice/room"
)

func statusAt(after time.Duration, called, missed, departed, inside int64) room.Status {
	return room.Status{Now: keyTime.Add(after), Admitted: called, NoShows: missed, Departed: departed, Inside: inside}
}

func TestOutflow(t *testing.T) {
	for _, test := range []struct {
		name    string
		samples []room.Status
		rate    float64
		ok      bool
		freed   int64
	}{
		{"nothing", nil, 0, false, 0},
		{"one sample", []room.Status{statusAt(0, 5, 0, 0, 0)}, 0, false, 0},
		{"too short", []room.Status{statusAt(0, 5, 0, 0, 0), statusAt(4999*time.Millisecond, 9, 0, 0, 0)}, 0, false, 4},
		{"nobody let in", []room.Status{statusAt(0, 5, 0, 0, 0), statusAt(30*time.Second, 5, 0, 2, 0)}, 0, false, 0},
		{"5 s", []room.Status{statusAt(0, 5, 0, 0, 0), statusAt(5*time.Second, 15, 0, 0, 0)}, 2, true, 10},
		{"who missed was not let in", []room.Status{statusAt(0, 0, 0, 0, 0), statusAt(10*time.Second, 15, 5, 0, 0)}, 1, true, 10},
		{"missed only", []room.Status{statusAt(0, 5, 0, 0, 1), statusAt(10*time.Second, 5, 1, 0, 0)}, 0, false, 0},
		{"the filling of an empty room", []room.Status{statusAt(0, 0, 0, 0, 0), statusAt(10*time.Second, 110, 0, 0, 100)}, 11, true, 10},
		{"a minute and no more", []room.Status{
			statusAt(0, 0, 0, 0, 0), statusAt(10*time.Second, 100, 0, 0, 0), statusAt(40*time.Second, 130, 0, 0, 0), statusAt(70*time.Second, 160, 0, 0, 0),
		}, 1, true, 60},
		{"a gap", []room.Status{statusAt(0, 0, 0, 0, 0), statusAt(61*time.Second, 100, 0, 0, 0)}, 0, false, 0},
		{"another room", []room.Status{
			statusAt(0, 1000, 0, 0, 0), statusAt(10*time.Second, 2000, 0, 0, 0), statusAt(11*time.Second, 5, 0, 0, 0), statusAt(21*time.Second, 15, 0, 0, 0),
		}, 1, true, 10},
		{"a clock that went back", []room.Status{statusAt(time.Hour, 1, 0, 0, 0), statusAt(0, 2, 0, 0, 0), statusAt(10*time.Second, 12, 0, 0, 0)}, 1, true, 10},
	} {
		var o outflow
		for _, s := range test.samples {
			o.add(s, 0)
		}
		flow := o.rate()
		if rate, ok := flow.PerSecond(); ok != test.ok || rate != test.rate || flow.freed() != test.freed {
			t.Errorf("%s: %+v, %v a second, %v, %d freed; want %v, %v, %d", test.name, flow, rate, ok, flow.freed(), test.rate, test.ok, test.freed)
		}
	}
}

// The samples are bounded, and cover the time since a moment that is a minute ago, or up to a
// second less.
func TestOutflowWindow(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o outflow
		var all []room.Status
		now, called := time.Duration(0), int64(0)
		most := rapid.SampledFrom([]int{50, 900, 5000}).Draw(t, "ms at most")
		for range rapid.IntRange(1, 300).Draw(t, "samples") {
			now += time.Duration(rapid.IntRange(0, most).Draw(t, "ms")) * time.Millisecond
			called += rapid.Int64Range(0, 3).Draw(t, "called")
			s := statusAt(now, called, 0, 0, 0)
			all = append(all, s)
			o.add(s, 0)
			if len(o.samples) > 62 {
				t.Fatalf("it holds %d samples", len(o.samples))
			}
		}
		flow := o.rate()
		if flow.Over > outflowSpan || flow.Over < min(now-(all[0].Now.Sub(keyTime)), outflowSpan-outflowStep-time.Duration(most)*time.Millisecond) {
			t.Fatalf("it is over %v of %v", flow.Over, now)
		}
		var want []int64 // of the samples at that time
		for _, s := range all {
			if s.Now.Equal(keyTime.Add(now - flow.Over)) {
				want = append(want, called-s.Admitted)
			}
		}
		for _, n := range want {
			if n == flow.Called {
				return
			}
		}
		t.Fatalf("%d were called within %v, want one of %v", flow.Called, flow.Over, want)
	})
}

// The rate of a queue is measured over the time of that queue: not over the quiet time before it, a
// pause, or the time before the opening.
func TestOutflowOfTheLine(t *testing.T) {
	at := func(seconds, called, waiting, inside int64) room.Status {
		s := statusAt(time.Duration(seconds)*time.Second, called, 0, 0, inside)
		s.Waiting = waiting
		return s
	}
	for _, test := range []struct {
		name    string
		samples []room.Status
		over    time.Duration
		freed   int64
	}{
		{"no line", []room.Status{at(0, 0, 0, 0), at(10, 50, 0, 3)}, 0, 0},
		{"a line after a quiet time", []room.Status{at(0, 0, 0, 0), at(20, 5, 0, 5), at(21, 105, 300, 100), at(31, 205, 200, 100)}, 11 * time.Second, 105},
		{"the opening", []room.Status{at(0, 0, 500, 0), at(30, 0, 900, 0), at(31, 100, 800, 100), at(41, 200, 700, 100)}, 11 * time.Second, 100},
		{"after a pause", []room.Status{at(0, 100, 9, 100), at(10, 100, 9, 40), at(11, 160, 9, 100), at(21, 170, 9, 100)}, 11 * time.Second, 10},
		{"a line from the beginning", []room.Status{at(0, 100, 9, 100), at(10, 200, 9, 100)}, 10 * time.Second, 100},
		{"another room", []room.Status{at(0, 900, 0, 0), at(1, 5, 9, 100), at(11, 15, 9, 100)}, 10 * time.Second, 10},
	} {
		var o outflow
		for _, s := range test.samples {
			o.add(s, 100)
		}
		if flow := o.line(); flow.Over != test.over || flow.freed() != test.freed {
			t.Errorf("%s: %d freed in %v, want %d in %v", test.name, flow.freed(), flow.Over, test.freed, test.over)
		}
	}
}
