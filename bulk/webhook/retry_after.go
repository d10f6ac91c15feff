package webhook

import (
	"net/http"
	"strconv"
	"strings"
	"time"
)

// MaxRetryAfter bounds what a Retry-After header can ask for: a target cannot
// put a job off for longer.
const MaxRetryAfter = 24 * time.Hour

// parseRetryAfter reads a Retry-After header: whole seconds, or an HTTP date as
// seen from now. It is from 0 (a date in the past) to MaxRetryAfter; ok is false
// where the header is missing or neither of the two.
func parseRetryAfter(value string, now time.Time) (after time.Duration, ok bool) {
	value = strings.TrimSpace(value)
	if digits(value) {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(MaxRetryAfter/time.Second) {
			return MaxRetryAfter, true // digits only, so err can only mean: too many of them
		}
		return time.Duration(seconds) * time.Second, true
	}
	at, err := http.ParseTime(value)
	if err != nil {
		return 0, false
	}
	return min(max(at.Sub(now), 0), MaxRetryAfter), true
}

func digits(s string) bool {
	for i := range len(s) {
		if s[i] < '0' || s[i] > '9' {
			return false
		}
	}
	return s != ""
}
