package webhook

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
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
	// Location is where a redirect points, as its header says it; printable, at
	// most MaxExcerptBytes. Empty if it does not say.
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

// result returns the body of a success if it is a job's result.
func (h *Handler) result(body []byte) []byte {
	if int64(len(body)) > h.options.MaxResponseBytes || !json.Valid(body) {
		return nil
	}
	return bytes.TrimSpace(body)
}

// refusal turns an answer other than 2xx into the handler's error.
func refusal(host string, response *http.Response, body []byte, now time.Time) error {
	status := response.StatusCode
	retryAfter, asked := parseRetryAfter(response.Header.Get("Retry-After"), now)
	if status == http.StatusTooManyRequests || status == http.StatusServiceUnavailable {
		reason := withExcerpt(answered(host, status), excerpt(body))
		return &bulk.ThrottledError{RetryAfter: retryAfter, Reason: reason}
	}
	err := &StatusError{
		Host: host, Status: status, Excerpt: excerpt(body),
		Location: excerpt([]byte(response.Header.Get("Location"))),
	}
	switch {
	case !transient(status):
		return finalError{err}
	case asked:
		return &bulk.RetryAfterError{After: retryAfter, Err: err}
	default:
		return err
	}
}

// transient tells whether a status may be another one at the next attempt.
func transient(status int) bool {
	switch {
	case status == http.StatusRequestTimeout || status == http.StatusTooEarly:
		return true
	default:
		return status < 300 || status >= 500
	}
}

// excerpt returns the beginning of a text as one printable line of at most
// MaxExcerptBytes. What is not printable, or not UTF-8, becomes U+FFFD.
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
		// Keep room for a space and for the mark that says there is more.
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
