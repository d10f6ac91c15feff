package bulktest

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluice-project/sluice/bulk"
)

// NewJob returns a job in its first attempt: job 0 of the action "action" of the tenant
// "tenant". Its payload is encoded as JSON, unless it is bytes. If jobType is empty, it is
// that of the payload, a bulk.Args. Tests may change other fields, such as the attempt or the
// tenant in Spec.
func NewJob(t testing.TB, jobType string, payload any) *bulk.Job {
	t.Helper()
	if args, ok := payload.(bulk.Args); ok && jobType == "" {
		jobType = args.JobType()
	}
	return &bulk.Job{
		Spec:     &bulk.Spec{ID: "action", Tenant: defaultTenant, Type: jobType},
		Payload:  encode(t, payload),
		Attempt:  1,
		Deadline: time.Now().Add(30 * time.Second),
	}
}

const defaultTenant = "tenant"

// encode encodes a payload as JSON; bytes are returned as they are.
func encode(t testing.TB, payload any) []byte {
	t.Helper()
	switch payload := payload.(type) {
	case []byte:
		return payload
	case json.RawMessage:
		return payload
	}
	encoded, err := json.Marshal(payload)
	if err != nil {
		t.Fatalf("the payload cannot be encoded: %v", err)
	}
	return encoded
}

// Work makes one attempt of a worker with args. Change may modify the job first, such as its
// Attempt.
func Work[T bulk.Args](t testing.TB, worker bulk.Worker[T], args T, change ...func(*bulk.Job)) *Attempt {
	t.Helper()
	mux := bulk.NewMux()
	bulk.AddWorker(mux, worker)
	job := NewJob(t, bulk.JobType[T](), args)
	for _, f := range change {
		f(job)
	}
	return Run(t, mux, job, bulk.Config{})
}

// Run makes one attempt of a job with a mux's handler for its type, as an engine with that
// config does.
func Run(t testing.TB, mux *bulk.Mux, job *bulk.Job, config bulk.Config) *Attempt {
	t.Helper()
	return &Attempt{Attempt: mux.Attempt(t.Context(), job, config), t: t}
}

// Attempt is the result of one attempt. Its assertions can be chained.
type Attempt struct {
	bulk.Attempt
	t testing.TB
}

// RequireSucceeded fails the test unless the attempt succeeded.
func (a *Attempt) RequireSucceeded() *Attempt {
	a.t.Helper()
	a.require(a.Kind == bulk.Succeeded, "one that succeeded")
	return a
}

// RequireResult fails the test unless the attempt succeeded with a result equal to want as
// JSON; nil is no result.
func (a *Attempt) RequireResult(want any) *Attempt {
	a.t.Helper()
	if want == nil {
		a.require(a.Kind == bulk.Succeeded && a.Result == nil, "one that succeeded without a result")
		return a
	}
	encoded := encode(a.t, want)
	a.require(a.Kind == bulk.Succeeded && sameJSON(a.Result, encoded), fmt.Sprintf("one that succeeded with %s", encoded))
	return a
}

// RequireRetried fails the test unless the attempt failed and the job is retried while
// attempts are left. After is the delay that the handler asked for; 0 leaves it to the
// backoff.
func (a *Attempt) RequireRetried(after time.Duration) *Attempt {
	a.t.Helper()
	a.require(a.Kind == bulk.FailedForNow && a.RetryAfter == after, "one that failed for now"+delay(after))
	return a
}

// RequireThrottled fails the test unless the attempt was throttled. After is the minimum
// delay that the target asked for; 0 is none.
func (a *Attempt) RequireThrottled(after time.Duration) *Attempt {
	a.t.Helper()
	a.require(a.Kind == bulk.Throttled && a.RetryAfter == after, "one that was throttled"+delay(after))
	return a
}

// RequireFailed fails the test unless the job failed permanently.
func (a *Attempt) RequireFailed() *Attempt {
	a.t.Helper()
	a.require(a.Kind == bulk.FailedForGood, "one that failed for good")
	return a
}

// RequireError fails the test unless the attempt ended with an error that matches want, as by
// errors.Is.
func (a *Attempt) RequireError(want error) *Attempt {
	a.t.Helper()
	a.require(errors.Is(a.Err, want), fmt.Sprintf("the error %q", want))
	return a
}

// RequireErrorText fails the test unless the attempt ended with an error whose
// text contains part.
func (a *Attempt) RequireErrorText(part string) *Attempt {
	a.t.Helper()
	a.require(a.Err != nil && strings.Contains(a.Err.Error(), part), fmt.Sprintf("an error about %q", part))
	return a
}

func (a *Attempt) require(ok bool, want string) {
	a.t.Helper()
	if !ok {
		a.t.Fatalf("the attempt %s; want %s", a, want)
	}
}

// String describes the result of the attempt; for a panic, with its stack.
func (a *Attempt) String() string {
	var text string
	switch a.Kind {
	case bulk.Succeeded:
		if a.Result == nil {
			return "succeeded without a result"
		}
		return fmt.Sprintf("succeeded with %s", a.Result)
	case bulk.FailedForGood:
		text = "failed for good"
	case bulk.Throttled:
		text = "was throttled" + delay(a.RetryAfter)
	default:
		text = "failed for now" + delay(a.RetryAfter)
	}
	text += ": " + a.Err.Error()
	var panicked *bulk.PanicError
	if errors.As(a.Err, &panicked) {
		text += "\n" + string(panicked.Stack)
	}
	return text
}

func delay(after time.Duration) string {
	if after == 0 {
		return ", with no delay asked for"
	}
	return ", to come again after " + after.String()
}

// sameJSON reports whether two JSON values are equal, regardless of the order of fields.
// Numbers are compared as text.
func sameJSON(a, b []byte) bool {
	x, errX := decode(a)
	y, errY := decode(b)
	return errX == nil && errY == nil && reflect.DeepEqual(x, y)
}

func decode(data []byte) (value any, err error) {
	decoder := json.NewDecoder(strings.NewReader(string(data)))
	decoder.UseNumber()
	err = decoder.Decode(&value)
	return value, err
}
