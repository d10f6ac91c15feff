package bulk

import (
	"fmt"
	"iter"
	"time"
)

// Image is the data of a closed store, for migration into another. It omits what is soon
// measured again, such as the tags of fair queueing. It is read as streams, so that it is
// never all in memory. Streams can be repeated, and several read at a time. A yielded value
// is valid until the next. An error ends the stream.
type Image interface {
	// Facts has the small data.
	Facts() ImageFacts
	// Schedules are in the order of their names.
	Schedules() iter.Seq2[Schedule, error]
	// Events are the unpublished events, the oldest first, with their IDs.
	Events() iter.Seq2[[]Event, error]
	// Actions are in the order of their numbers, which is the order of their creation.
	Actions() iter.Seq2[ActionImage, error]
	// Jobs are the jobs of an action that were ever admitted, by index. Each yielded
	// page has the jobs of different ImagePage indexes.
	Jobs(a *ActionImage) iter.Seq2[[]JobImage, error]
	// Payloads are the payloads of count jobs of a live action, from index first, in order.
	// They stay valid.
	Payloads(a *ActionImage, first, count int64) iter.Seq2[[][]byte, error]
	// Outcomes are the outcomes of a live action that were not reduced, in order.
	Outcomes(a *ActionImage) iter.Seq2[[]Outcome, error]
	// DeadLetters are the dead letters by index. Their Action is empty.
	DeadLetters(a *ActionImage) iter.Seq2[[]DeadLetter, error]
	// Results are the kept results, by index.
	Results(a *ActionImage) iter.Seq2[ResultImage, error]
}

// ImagePage is the number of job indexes of one page of Image.Jobs, which begins at a
// multiple of it.
const ImagePage = 1024

// ImageFacts is the data that a store has once.
type ImageFacts struct {
	// Highest is the highest number ever given to an action.
	Highest uint64
	// WindowEnds is when the window of the last attempt ends: until then attempts that
	// the image does not have count against limits. Zero if there was none.
	WindowEnds time.Time
	// Secret is that of the store: tokens of leases stay valid with it. Empty if the store
	// has none.
	Secret []byte
	// KeepsEvents reports whether the store keeps events.
	KeepsEvents bool
	// Settings are the settings stored by Store.Set, in any order.
	Settings []SettingsChange
	// Rates are the rates found for the targets set to Auto, by name.
	Rates map[string]AutoRate
}

// ActionImage is an action in an Image. Its Counts are those of the streams: no job is
// ready, as that is not stored. Batches and Reduced count batches of the original store.
type ActionImage struct {
	Action
	// Number is LeaseID.Action of its leases.
	Number uint64
	// Live reports whether the action is not finished, or has jobs in flight: then it has
	// payloads.
	Live bool
	// Next is the first job from which on none was ever leased. Earlier jobs that Jobs
	// does not have wait in front of it.
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
	// PhaseAside: the job is non-ready until JobImage.At.
	PhaseAside
	// PhaseInFlight: a worker has the job, until JobImage.At.
	PhaseInFlight
	// PhaseSucceeded, PhaseFailed and PhaseCanceled: the job has finished.
	PhaseSucceeded
	PhaseFailed
	PhaseCanceled
)

// JobImage is a job in an Image.
type JobImage struct {
	Index int64
	Phase JobPhase
	// Fence is the fence of the last lease: the number of leases of the job.
	Fence uint32
	// Attempts and Crashes count against their limits. They are 0 for a job that has
	// finished.
	Attempts, Crashes int
	// Reason is the reason of PhaseAside.
	Reason NonReadyReason
	// Local reports whether a job in flight was leased by a worker in the process that
	// has ended: its return counts as a crash, not as an attempt.
	Local bool
	// Lapsed reports whether the last lease expired, or ended with its process.
	Lapsed bool
	At     time.Time
}

// ResultImage is a kept result in an Image: see JobState.
type ResultImage struct {
	Index     int64
	Result    []byte
	Truncated bool
}

// ImageSummary counts the contents of an image.
type ImageSummary struct {
	Actions    int64 `json:"actions"`
	Unfinished int64 `json:"unfinished_actions"`
	// Jobs counts all received jobs, Waiting those that have not finished.
	Jobs    int64 `json:"jobs"`
	Waiting int64 `json:"unfinished_jobs"`
	// InFlight counts the jobs that workers have.
	InFlight    int64 `json:"in_flight"`
	DeadLetters int64 `json:"dead_letters"`
	Events      int64 `json:"events"`
	Schedules   int64 `json:"schedules"`
	Settings    int64 `json:"settings"`
}

// SummarizeImage reads an image, without its payloads.
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

// ImageError is the error of an image that is inconsistent, or whose copy differs.
type ImageError struct {
	// Action is empty if the error is not about one action.
	Action string
	Why    string
}

func (e *ImageError) Error() string {
	if e.Action == "" {
		return e.Why
	}
	return fmt.Sprintf("action %q: %s", e.Action, e.Why)
}
