package edge

import (
	"mime"
	"net/http"
	"strconv"

	"github.com/sluice-project/sluice/internal/edge/problem"
)

// MaxBody is the most bytes of a body where an operation sets no other bound.
const MaxBody = 1 << 20

// TooSlow is the problem of a body whose reader returned os.ErrDeadlineExceeded.
func TooSlow() *Error {
	return Refuse(http.StatusRequestTimeout, problem.Timeout, "the body arrived too slowly, or not at all")
}

func tooLarge(most int64) *Error {
	return Refuse(http.StatusRequestEntityTooLarge, problem.TooLarge, "the body has more than "+strconv.FormatInt(most, 10)+" bytes")
}

func wrongType(contentType string) *Error {
	return Refuse(http.StatusUnsupportedMediaType, problem.MediaType, "content type "+strconv.Quote(contentType[:min(len(contentType), 100)])+": want application/json")
}

// checkType accepts JSON, and a body whose type is not given.
func checkType(contentType string) error {
	if contentType == "" || contentType == "application/json" {
		return nil
	}
	if kind, _, err := mime.ParseMediaType(contentType); err == nil && kind == "application/json" {
		return nil
	}
	return wrongType(contentType)
}
