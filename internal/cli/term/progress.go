package term

import (
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
)

// migrateTick is how often a terminal is redrawn; migrateLine is how often a line is
// written elsewhere.
const (
	migrateTick = 250 * time.Millisecond
	migrateLine = 5 * time.Second
)

// WhileShown runs work and shows its progress: in place on a terminal, else as lines.
// line returns the text; rate converts the count of finished items to a rate per second.
func WhileShown(on Screen, work func() error, line func(rate func(done int64) float64) string) error {
	done := make(chan error, 1)
	go func() { done <- work() }()
	shown, every := status{Screen: on}, migrateLine
	defer shown.Close()
	if on.Size != nil {
		every = migrateTick
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	began, meter := time.Now(), RateMeter{}
	meter.Read(0, 0)
	rate := func(done int64) float64 { return meter.Read(time.Since(began), done) }
	for {
		select {
		case err := <-done:
			return err
		case <-tick.C:
			shown.Show(line(rate))
		}
	}
}

// rateSpan is the time that a rate is measured over.
const rateSpan = 3 * time.Second

// RateMeter measures how fast a count rises, over the last rateSpan. It holds
// the readings of that span only.
type RateMeter struct {
	at    []time.Duration
	count []int64
}

// Read adds a reading and returns the rate per second.
func (r *RateMeter) Read(at time.Duration, count int64) float64 {
	r.at, r.count = append(r.at, at), append(r.count, count)
	for len(r.at) > 2 && at-r.at[1] >= rateSpan {
		r.at, r.count = r.at[1:], r.count[1:]
	}
	took := (at - r.at[0]).Seconds()
	if took <= 0 {
		return 0
	}
	return float64(count-r.count[0]) / took
}

// Times of a Reading.
const (
	// quickIntake is how long reading may take before it is shown at all.
	quickIntake = 500 * time.Millisecond
	// The intervals between two draws on a terminal, and between two plain lines.
	redrawIntake = 100 * time.Millisecond
	retellIntake = 5 * time.Second
)

// Reading shows the progress of reading an input. An input that is read quickly is not
// shown.
type Reading struct {
	status
	verb, noun  string
	input       progress
	start, next time.Time
}

// progress is something that is being read.
type progress interface {
	// Progress returns how many bytes were read and the size; 0 if it is not known.
	Progress() (read, size int64)
}

// NewReading returns a display, such as "uploading: 20 jobs"; a quiet one
// shows nothing.
func NewReading(s Screen, verb, noun string, input progress, quiet bool) *Reading {
	if quiet {
		return &Reading{}
	}
	now := time.Now()
	return &Reading{status: status{Screen: s}, verb: verb, noun: noun, input: input, start: now, next: now.Add(quickIntake)}
}

// Show is called with the number of rows read so far.
func (d *Reading) Show(rows int64) {
	now := time.Now()
	if d.input == nil || now.Before(d.next) {
		return
	}
	d.next = now.Add(redrawIntake)
	if d.Size == nil {
		d.next = now.Add(retellIntake)
	}
	d.status.Show(d.line(rows, now.Sub(d.start)))
}

func (d *Reading) line(rows int64, elapsed time.Duration) string {
	line := fmt.Sprintf("%s: %s %ss", d.verb, humanize.Comma(rows), d.noun)
	if read, size := d.input.Progress(); size > 0 {
		line += fmt.Sprintf(" (%s)", Percent(read, size))
	}
	return line + " · " + Spell(elapsed) + " · " + PerSecond(float64(rows)/elapsed.Seconds())
}
