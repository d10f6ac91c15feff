package bulk

import (
	"fmt"
	"regexp"
	"strings"
	"time"
)

// CauseTimeout is the cause of a failure without an answer in time.
const CauseTimeout = "timeout"

// FailureFilter selects dead letters by why and when their jobs failed. The zero value selects all.
type FailureFilter struct {
	// Cause selects those whose Cause it is: a status of HTTP such as 503, a class of them such as
	// 5xx, or CauseTimeout.
	Cause string `json:"cause,omitempty"`
	// Error selects those whose message contains it, in upper or lower case; at most MaxErrorBytes.
	Error string `json:"error,omitempty"`
	// Since and Until select those that failed at Since or later, and before Until; zero is no bound.
	Since time.Time `json:"since,omitzero"`
	Until time.Time `json:"until,omitzero"`
}

// answered is how webhook.StatusError begins, and also what other workers may write.
var answered = regexp.MustCompile(`\btarget \S+ answered ([1-9][0-9]{2})\b`)

// Cause returns why a job failed, of its error: the status of HTTP with which its target answered,
// CauseTimeout if the error says that something timed out, or "".
func Cause(text string) string {
	if found := answered.FindStringSubmatch(text); found != nil {
		return found[1]
	}
	text = strings.ToLower(text)
	for _, words := range []string{"timed out", "timeout", "deadline exceeded"} {
		if strings.Contains(text, words) {
			return CauseTimeout
		}
	}
	return ""
}

var causes = regexp.MustCompile(`^([1-9]([0-9]{2}|xx)|` + CauseTimeout + `)?$`)

// check returns a *ChangeError if a field is wrong.
func (f *FailureFilter) check() error {
	switch {
	case !causes.MatchString(f.Cause):
		return &ChangeError{"cause", "want a status such as 503, a class such as 5xx, or " + CauseTimeout}
	case len(f.Error) > MaxErrorBytes:
		return &ChangeError{"error", fmt.Sprintf("want at most %d bytes", MaxErrorBytes)}
	case !f.Until.IsZero() && !f.Until.After(f.Since):
		return &ChangeError{"until", "want a time after since"}
	}
	return nil
}

// normal returns the filter as stores keep it, with times as exact as theirs.
func (f FailureFilter) normal() FailureFilter {
	f.Since, f.Until = f.Since.UTC().Truncate(time.Millisecond), f.Until.UTC().Truncate(time.Millisecond)
	return f
}

// Selects reports whether the filter is set.
func (f *FailureFilter) Selects() bool { return *f != FailureFilter{} }

// Match reports whether the filter selects a dead letter.
func (f *FailureFilter) Match(l *DeadLetter) bool {
	if l.FailedAt.Before(f.Since) || !f.Until.IsZero() && !l.FailedAt.Before(f.Until) ||
		!strings.Contains(strings.ToLower(l.Error), strings.ToLower(f.Error)) {
		return false
	}
	if f.Cause == "" {
		return true
	}
	class, isClass := strings.CutSuffix(f.Cause, "xx")
	cause := Cause(l.Error)
	return cause == f.Cause || isClass && cause != CauseTimeout && strings.HasPrefix(cause, class)
}

// mayHave reports whether jobs of an action may have failed in the filter's time.
func (f *FailureFilter) mayHave(a *Action) bool {
	return a.Failed > 0 && (a.FinishedAt.IsZero() || !a.FinishedAt.Before(f.Since)) && (f.Until.IsZero() || a.CreatedAt.Before(f.Until))
}
