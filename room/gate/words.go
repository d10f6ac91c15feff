package gate

import (
	"strconv"
	"strings"
	"time"

	"golang.org/x/text/language"

	"github.com/sluice-project/sluice/room"
)

// builtInWords are the texts in all languages of the page.
var builtInWords = []*Words{&english, &korean, &japanese, &simplifiedChinese}

// Languages are the languages of the page; the first is the default of [Options].
func Languages() []language.Tag {
	tags := make([]language.Tag, len(builtInWords))
	for i, words := range builtInWords {
		tags[i] = language.MustParse(words.Lang)
	}
	return tags
}

// Words are the texts of a page in one language. Numbers replace {n}, {low} and {high}.
type Words struct {
	// Lang is the language, for the lang attribute.
	Lang string `json:"lang"`

	Place       string `json:"place"`
	PlaceSuffix string `json:"place_suffix"`
	PlaceHidden string `json:"place_hidden"`
	Next        string `json:"next"`
	AheadOne    string `json:"ahead_one"`
	Ahead       string `json:"ahead"`

	Wait            string `json:"wait"`
	WaitUnknown     string `json:"wait_unknown"`
	WaitSeconds     string `json:"wait_seconds"`
	WaitUpTo        string `json:"wait_up_to"`
	WaitUpToOne     string `json:"wait_up_to_one"`
	WaitMinute      string `json:"wait_minute"`
	WaitMinutes     string `json:"wait_minutes"`
	WaitRange       string `json:"wait_range"`
	WaitUpToHours   string `json:"wait_up_to_hours"`
	WaitMinuteHours string `json:"wait_minute_hours"`
	WaitHours       string `json:"wait_hours"`
	WaitHoursRange  string `json:"wait_hours_range"`

	Progress string `json:"-"`
	Keep     string `json:"-"`
	Refresh  string `json:"-"`
	Lost     string `json:"-"`
	Cookies  string `json:"-"`
	OpensAt  string `json:"-"`
	NotSent  string `json:"-"`
	Leave    string `json:"-"`
	LeaveAsk string `json:"-"`
	LeaveYes string `json:"-"`
	Again    string `json:"-"`
	Retry    string `json:"-"`
	Continue string `json:"-"`

	// Proof names the progress of a ProofOfWork, which NeedScript asks JavaScript for.
	Proof      string `json:"-"`
	NeedScript string `json:"-"`

	pages map[Kind]text
	lost  map[room.Reason]string
	time  string
}

// text is what a page of one kind says first.
type text struct{ title, heading, message string }

// ahead returns how many visitors are before one.
func (w *Words) ahead(ahead int64) string {
	switch ahead {
	case 0:
		return w.Next
	case 1:
		return w.AheadOne
	}
	return fill(w.Ahead, "{n}", number(ahead))
}

// wait returns the estimated wait: in minutes up to two hours, then in hours, from the
// lower bound rounded down to the upper one rounded up.
func (w *Words) wait(wait *room.Wait) string {
	if wait == nil {
		return w.WaitUnknown
	}
	low, high := int64(wait.Low/time.Minute), ceil(wait.High, time.Minute)
	switch {
	case wait.High < time.Minute:
		return w.WaitSeconds
	case high > 120 && low == 0:
		return fill(w.WaitUpToHours, "{high}", number(ceil(wait.High, time.Hour)))
	case high > 120 && low < 60:
		return fill(w.WaitMinuteHours, "{low}", number(low), "{high}", number(ceil(wait.High, time.Hour)))
	case high > 120:
		return between(low/60, ceil(wait.High, time.Hour), w.WaitHours, w.WaitHoursRange)
	case low == 0 && high == 1:
		return w.WaitUpToOne
	case low == 0:
		return fill(w.WaitUpTo, "{high}", number(high))
	case high == 1:
		return w.WaitMinute
	}
	return between(low, high, w.WaitMinutes, w.WaitRange)
}

func between(low, high int64, one, both string) string {
	if low >= high {
		return fill(one, "{n}", number(high))
	}
	return fill(both, "{low}", number(low), "{high}", number(high))
}

func ceil(d, unit time.Duration) int64 { return int64((d + unit - 1) / unit) }

func fill(text string, pairs ...string) string { return strings.NewReplacer(pairs...).Replace(text) }

// number groups digits by thousands with commas, as all languages of the page do.
func number(n int64) string {
	digits := strconv.FormatInt(n, 10)
	first := len(digits) % 3
	var grouped strings.Builder
	for i, digit := range digits {
		if i > 0 && i%3 == first {
			grouped.WriteByte(',')
		}
		grouped.WriteRune(digit)
	}
	return grouped.String()
}

// moment is a time as shown where the script does not convert it to local time.
func (w *Words) moment(t time.Time) string { return t.UTC().Format(w.time) }
