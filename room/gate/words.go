package gate

import (
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/room"
	"github.com/sluice-project/sluice/room/engine"
)

// Words are the texts of a page in one language. Numbers replace {n}, {low} and {high}. The files in
// words have those that are built in.
type Words struct {
	// Lang is the language, for the lang attribute.
	Lang string `json:"lang"`

	Place       string `json:"place"`
	PlaceSuffix string `json:"place_suffix" yaml:"place_suffix"`
	PlaceHidden string `json:"place_hidden" yaml:"place_hidden"`
	Next        string `json:"next"`
	AheadOne    string `json:"ahead_one" yaml:"ahead_one"`
	Ahead       string `json:"ahead"`

	Wait            string `json:"wait"`
	WaitUnknown     string `json:"wait_unknown" yaml:"wait_unknown"`
	WaitSeconds     string `json:"wait_seconds" yaml:"wait_seconds"`
	WaitUpTo        string `json:"wait_up_to" yaml:"wait_up_to"`
	WaitUpToOne     string `json:"wait_up_to_one" yaml:"wait_up_to_one"`
	WaitMinute      string `json:"wait_minute" yaml:"wait_minute"`
	WaitMinutes     string `json:"wait_minutes" yaml:"wait_minutes"`
	WaitRange       string `json:"wait_range" yaml:"wait_range"`
	WaitUpToHours   string `json:"wait_up_to_hours" yaml:"wait_up_to_hours"`
	WaitMinuteHours string `json:"wait_minute_hours" yaml:"wait_minute_hours"`
	WaitHours       string `json:"wait_hours" yaml:"wait_hours"`
	WaitHoursRange  string `json:"wait_hours_range" yaml:"wait_hours_range"`

	Progress string `json:"-"`
	Keep     string `json:"-"`
	Refresh  string `json:"-"`
	Lost     string `json:"-"`
	Cookies  string `json:"-"`
	OpensAt  string `json:"-" yaml:"opens_at"`
	NotSent  string `json:"-" yaml:"not_sent"`
	Leave    string `json:"-"`
	LeaveAsk string `json:"-" yaml:"leave_ask"`
	LeaveYes string `json:"-" yaml:"leave_yes"`
	Again    string `json:"-"`
	Retry    string `json:"-"`
	Continue string `json:"-"`

	// Code offers to type a code, and CodeWithout to go on without one.
	Code        string `json:"-"`
	CodeLabel   string `json:"-" yaml:"code_label"`
	CodeUse     string `json:"-" yaml:"code_use"`
	CodeWithout string `json:"-" yaml:"code_without"`

	// Proof names the progress of a ProofOfWork, which NeedScript asks JavaScript for.
	Proof      string `json:"-"`
	NeedScript string `json:"-" yaml:"need_script"`

	// Time is how 2 January 2006, 15:04 is written; Thousands separates thousands.
	Time      string `json:"-"`
	Thousands string `json:"thousands"`
	// Gone says why an earlier place is gone.
	Gone map[room.Reason]string `json:"-"`
	// Pages are the first texts of a page of each kind.
	Pages map[Kind]Text `json:"-"`
}

// Text is what a page says first. The message may be empty.
type Text struct{ Title, Heading, Message string }

// ahead returns how many visitors are before one.
func (w *Words) ahead(ahead int64) string {
	switch ahead {
	case 0:
		return w.Next
	case 1:
		return w.AheadOne
	}
	return fill(w.Ahead, "{n}", w.number(ahead))
}

// wait returns the estimated wait: in minutes up to two hours, then in hours, from the
// lower bound rounded down to the upper one rounded up.
func (w *Words) wait(wait *engine.Wait) string {
	if wait == nil {
		return w.WaitUnknown
	}
	low, high := int64(wait.Low/time.Minute), ceil(wait.High, time.Minute)
	switch {
	case wait.High < time.Minute:
		return w.WaitSeconds
	case high > 120 && low == 0:
		return fill(w.WaitUpToHours, "{high}", w.number(ceil(wait.High, time.Hour)))
	case high > 120 && low < 60:
		return fill(w.WaitMinuteHours, "{low}", w.number(low), "{high}", w.number(ceil(wait.High, time.Hour)))
	case high > 120:
		return w.between(low/60, ceil(wait.High, time.Hour), w.WaitHours, w.WaitHoursRange)
	case low == 0 && high == 1:
		return w.WaitUpToOne
	case low == 0:
		return fill(w.WaitUpTo, "{high}", w.number(high))
	case high == 1:
		return w.WaitMinute
	}
	return w.between(low, high, w.WaitMinutes, w.WaitRange)
}

func (w *Words) between(low, high int64, one, both string) string {
	if low >= high {
		return fill(one, "{n}", w.number(high))
	}
	return fill(both, "{low}", w.number(low), "{high}", w.number(high))
}

func ceil(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }

func fill(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

// number groups digits by thousands.
func (w *Words) number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	first := len(digits) % 3
	var grouped strings.Builder
	for i, digit := range digits {
		if i > 0 && i%3 == first {
			grouped.WriteString(w.Thousands)
		}
		grouped.WriteRune(digit)
	}
	return grouped.String()
}

// moment is a time as shown where the script does not convert it to local time.
func (w *Words) moment(t time.Time) string { return t.UTC().Format(w.Time) }
