package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strconv"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/sluice-project/sluice/bulk"
)

// MaxExcerptBytes is how much of an answer's body an error text quotes.
const MaxExcerptBytes = 200

// StatusError is an answer that is neither a success nor a throttle.
type StatusError struct {
	// Host is the host:port that answered.
	Host string
	// Status is the answer's status code.
	Status int
	// Location is the destination of a redirect, as bulk.RedactURL shows the header; printable,
	// at most MaxExcerptBytes. Empty if there is none.
	Location string
	// Excerpt is the beginning of the body: one printable line of at most
	// MaxExcerptBytes.
	Excerpt string
}

func (e *StatusError) Error() string {
	text := answered(e.Host, e.Status)
	if e.Status >= 300 && e.Status < 400 {
		to := "does not say where"
		if e.Location != "" {
			to = "points to " + e.Location
		}
		return text + ", which " + to + ": redirects are not followed, give the final URL"
	}
	return withExcerpt(text, e.Excerpt)
}

func answered(host string, status int) string {
	text := fmt.Sprintf("target %s answered %d", host, status)
	if name := http.StatusText(status); name != "" {
		text += " " + name
	}
	return text
}

func withExcerpt(text, excerpt string) string {
	if excerpt == "" {
		return text
	}
	return text + ": " + excerpt
}

// result returns the body of a success as the job's result; nil if it is not one.
func (h *Handler) result(body []byte) []byte {
	if int64(len(body)) > h.options.MaxResponseBytes || !json.Valid(body) {
		return nil
	}
	return bytes.TrimSpace(body)
}

// refusal returns the handler's error for an answer other than 2xx.
func refusal(host string, response *http.Response, body []byte, now time.Time) error {
	status := response.StatusCode
	retryAfter, asked := parseRetryAfter(response.Header.Get("Retry-After"), now)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		reason := withExcerpt(answered(host, status), excerpt(body))
		return &bulk.ThrottledError{RetryAfter: retryAfter, Reason: reason}
	}
	err := &StatusError{
		Host: host, Status: status, Excerpt: excerpt(body),
		Location: excerpt([]byte(bulk.RedactURL(response.Header.Get("Location")))),
	}
	switch {
	case !transient(status):
		return finalError{err}
	case asked:
		return &bulk.RetryAfterError{After: retryAfter, Err: err}
	case status == http.StatusBadGateway || status == http.StatusGatewayTimeout:
		return silence{err}
	default:
		return err
	}
}

// transient reports whether the next attempt may get another status.
func transient(status int) bool {
	switch {
	case status == http.StatusRequestTimeout || status == http.StatusTooEarly:
		return true
	default:
		return status < 300 || status >= 500
	}
}

// excerpt returns the beginning of a text as one printable line of at most MaxExcerptBytes.
// Other characters, and invalid UTF-8, become U+FFFD.
func excerpt(body []byte) string {
	const ellipsis = "…"
	var line strings.Builder
	space := false
	for len(body) > 0 {
		r, size := utf8.DecodeRune(body)
		body = body[size:]
		if unicode.IsSpace(r) {
			space = line.Len() > 0
			continue
		}
		if !unicode.IsPrint(r) {
			r = utf8.RuneError
		}
		// Leave space for a space character and for the ellipsis.
		if line.Len()+1+utf8.RuneLen(r)+len(ellipsis) > MaxExcerptBytes {
			return line.String() + ellipsis
		}
		if space {
			line.WriteByte(' ')
			space = false
		}
		line.WriteRune(r)
	}
	return line.String()
}

// headerCost is the header by which a target says what the attempt has really cost.
const headerCost = "Sluice-Cost"

// costOf returns what a target says of the cost of an attempt; 0 if it says nothing of use.
func costOf(header http.Header) int64 {
	cost, err := strconv.ParseInt(header.Get(headerCost), 10, 64)
	if err != nil || cost < 1 {
		return 0
	}
	return bulk.BoundCost(cost)
}

// MaxRetryAfter bounds the delay of a Retry-After header: a target cannot postpone a job for
// longer.
const MaxRetryAfter = 24 * time.Hour

// parseRetryAfter parses a Retry-After header: whole seconds, or an HTTP date relative to
// now. The result is from 0 (a date in the past) to MaxRetryAfter; ok is false if the header
// is missing or invalid.
func parseRetryAfter(value string, now time.Time) (after time.Duration, ok bool) {
	value = strings.TrimSpace(value)
	if digits(value) {
		seconds, err := strconv.ParseInt(value, 10, 64)
		if err != nil || seconds > int64(MaxRetryAfter/time.Second) {
			return MaxRetryAfter, true // digits only, so the number is too large
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
