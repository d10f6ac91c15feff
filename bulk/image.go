package bulk

import (
	"fmt"
	"iter"
	"time"
)

// Image is what a store at rest keeps, for another store to take over: all of it
// but what is found again by working, such as the tags of fair queueing. It is read
// as streams, so that it is never all in memory; each may be read again, and several
// at a time. What a stream yields is valid until it yields the next. An error ends
// the stream.
type Image interface {
	// Facts are what is small.
	Facts() ImageFacts
	// Schedules are in the order of their names.
	Schedules() iter.Seq2[Schedule, error]
	// Events are those that wait to be published, the oldest first, with their IDs.
	Events() iter.Seq2[[]Event, error]
	// Actions are in the order of their numbers, which is that of their creation.
	Actions() iter.Seq2[ActionImage, error]
	// Jobs are those of an action that were touched, by index. No two pages have
	// jobs of the same ImagePage indexes.
	Jobs(a *ActionImage) iter.Seq2[[]JobImage, error]
	// Payloads are those of so many jobs of a live action, from one on, in order. They
	// stay valid.
	Payloads(a *ActionImage, first, count int64) iter.Seq2[[][]byte, error]
	// Outcomes are those of a live action that were not reduced, in their order.
	Outcomes(a *ActionImage) iter.Seq2[[]Outcome, error]
	// DeadLetters are by index. Their Action is empty.
	DeadLetters(a *ActionImage) iter.Seq2[[]DeadLetter, error]
}

// ImagePage is how many indexes of jobs have one page of Image.Jobs: from a multiple
// of it on.
const ImagePage = 1024

// ImageFacts are what a store keeps once.
type ImageFacts struct {
	// Highest is the highest number that was given to an action, also of those that
	// were forgotten.
	Highest uint64
	// WindowEnds is when the window of the last attempt ends: before it, limits have
	// less left than a store knows that has only the image. Zero if there was none.
	WindowEnds time.Time
	// KeepsEvents says that events are kept of what happens.
	KeepsEvents bool
	// Settings are those of Store.Set, in any order.
	Settings []SettingsChange
	// Rates are those found of the targets that are set to Auto, by name.
	Rates map[string]AutoRate
}

// ActionImage is an action in an Image. Its Counts are those of the streams: nothing
// is ready, as that is not kept. Batches and Reduced count in the unit of the store that
// made it.
type ActionImage struct {
	Action
	// Number is what its leases were given with: LeaseID.Action.
	Number uint64
	// Live says that the action is not finished, or jobs of it are in flight: it has
	// payloads.
	Live bool
	// Next is the first job that no worker was ever given, nor any after it. Those
	// before it that Jobs does not have wait in front of it.
	Next int64
	// Dead counts the dead letters.
	Dead int64
}

// JobPhase is where a job of an Image is.
type JobPhase uint8

// The phases.
const (
	// PhaseWaits: the job has returned to the front of its action's line.
	PhaseWaits JobPhase = iota
	// PhaseAside: the job was turned back, until JobImage.At.
	PhaseAside
	// PhaseInFlight: a worker has the job, until JobImage.At.
	PhaseInFlight
	// PhaseSucceeded, PhaseFailed and PhaseCanceled: the job is done for good.
	PhaseSucceeded
	PhaseFailed
	PhaseCanceled
)

// JobImage is a job in an Image.
type JobImage struct {
	Index int64
	Phase JobPhase
	// Fence is how often the job was leased.
	Fence uint32
	// Attempts and Crashes are those that count against their most. They are not
	// kept of a job that is done.
	Attempts, Crashes int
	// Reason is that of PhaseAside.
	Reason NonReadyReason
	// Local says that a job in flight was in the process that has ended: it is at
	// that end's cost that it comes back.
	Local bool
	// Lapsed says that the last lease ran out, or ended with its process.
	Lapsed bool
	At     time.Time
}

// ImageSummary counts what an image has.
type ImageSummary struct {
	Actions    int64 `json:"actions"`
	Unfinished int64 `json:"unfinished_actions"`
	// Jobs are all that were received, Waiting those that are not done.
	Jobs    int64 `json:"jobs"`
	Waiting int64 `json:"unfinished_jobs"`
	// InFlight are those that workers have.
	InFlight    int64 `json:"in_flight"`
	DeadLetters int64 `json:"dead_letters"`
	Events      int64 `json:"events"`
	Schedules   int64 `json:"schedules"`
	Settings    int64 `json:"settings"`
}

// SummarizeImage reads through an image, but for its payloads.
func SummarizeImage(image Image) (s ImageSummary, err error) {
	for a, err := range image.Actions() {
		if err != nil {
			return s, err
		}
		s.Actions++
		s.Jobs += a.Received
		s.Waiting += a.Received - a.Done()
		s.InFlight += a.InFlight
		s.DeadLetters += a.Dead
		if a.Live {
			s.Unfinished++
		}
	}
	for events, err := range image.Events() {
		if err != nil {
			return s, err
		}
		s.Events += int64(len(events))
	}
	for _, err := range image.Schedules() {
		if err != nil {
			return s, err
		}
		s.Schedules++
	}
	s.Settings = int64(len(image.Facts().Settings))
	return s, nil
}

// ImageError: an image does not add up, or what was taken over of it is not what it
// has.
type ImageError struct {
	// Action is empty where it is not about one.
	Action string
	Why    string
}

func (e *ImageError) Error() string {
	if e.Action == "" {
		return e.Why
	}
	return fmt.Sprintf("action %q: %s", e.Action, e.Why)
}
