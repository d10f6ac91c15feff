package main

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
)

// Times of an intake's display.
const (
	// quickIntake is how long an intake may take before it is shown at all.
	quickIntake = 500 * time.Millisecond
	// Between two draws: on a terminal, and in plain lines.
	redrawIntake = 100 * time.Millisecond
	retellIntake = 5 * time.Second
)

// intakeDisplay shows how far a file has been read. What is read quickly is not
// shown.
type intakeDisplay struct {
	screen screen
	verb   string
	noun   string
	input  progress
	start  time.Time
	next   time.Time
	drawn  bool
}

// progress is something that is being read.
type progress interface {
	// Progress is how many bytes were read, and of how many; 0: not known.
	Progress() (read, size int64)
}

// newIntakeDisplay returns a display, such as "uploading: 20 jobs"; a quiet one
// shows nothing.
func newIntakeDisplay(s screen, verb, noun string, input progress, quiet bool) *intakeDisplay {
	if quiet {
		return &intakeDisplay{}
	}
	now := time.Now()
	return &intakeDisplay{screen: s, verb: verb, noun: noun, input: input, start: now, next: now.Add(quickIntake)}
}

// Show is called now and then with the number of rows read so far.
func (d *intakeDisplay) Show(rows int64) {
	now := time.Now()
	if d.input == nil || now.Before(d.next) {
		return
	}
	line := d.line(rows, now.Sub(d.start))
	if d.screen.Size == nil {
		d.next = now.Add(retellIntake)
		fmt.Fprintln(d.screen, line)
		return
	}
	d.next, d.drawn = now.Add(redrawIntake), true
	fmt.Fprintf(d.screen, "\r%s\x1b[K", clip(line, d.screen.Columns()-1))
}

func (d *intakeDisplay) line(rows int64, elapsed time.Duration) string {
	line := fmt.Sprintf("%s: %s %ss", d.verb, humanize.Comma(rows), d.noun)
	if read, size := d.input.Progress(); size > 0 {
		line += fmt.Sprintf(" (%s)", percent(read, size))
	}
	return line + " · " + spell(elapsed) + " · " + perSecond(float64(rows)/elapsed.Seconds())
}

// Close takes the line off a terminal.
func (d *intakeDisplay) Close() {
	if d.drawn {
		fmt.Fprint(d.screen, "\r\x1b[K")
	}
}
