package edge

import (
	"io"
	"mime"
	"net/http"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/internal/edge/problem"
)

// The bounds of a body.
const (
	// MaxBody is the most bytes of a body where an operation sets no other bound.
	MaxBody = 1 << 20
	// BodyTime is how long a body may take to arrive where a part sets no other time.
	BodyTime = time.Minute
	// MaxDrain and drainTime bound what is read of a refused body, so that a client
	// that is still sending reads the answer.
	MaxDrain  = 64 << 20
	drainTime = 10 * time.Second
)

// body is the body of a request. Its deadline begins with the first read and ends
// with the body: it must not end a request that then waits.
type body struct {
	io.ReadCloser
	control      *http.ResponseController
	within       time.Duration
	began, ended bool
}

func (b *body) Read(p []byte) (int, error) {
	if !b.began {
		b.began = true
		b.deadline(time.Now().Add(b.within))
	}
	n, err := b.ReadCloser.Read(p)
	if err != nil {
		b.ended = true
		b.deadline(time.Time{})
	}
	return n, err
}

// Close leaves the body open: drain reads it, and the server closes it.
func (b *body) Close() error { return nil }

// deadline ignores errors: a writer without a connection has no deadline.
func (b *body) deadline(at time.Time) { _ = b.control.SetReadDeadline(at) }

// drain reads the rest of the body. A client whose connection closes while it sends
// may never see the answer.
func (b *body) drain(r *http.Request) {
	waiting := !b.began && r.Header.Get("Expect") != ""
	if b.ended || waiting {
		return
	}
	b.began = true
	b.deadline(time.Now().Add(drainTime))
	_, _ = io.CopyN(io.Discard, b, MaxDrain)
	b.deadline(time.Time{})
}

// bounded calls serve with a request whose body has a deadline, and drains the body.
func bounded(w http.ResponseWriter, r *http.Request, within time.Duration, serve func(*http.Request)) {
	if r.Body == nil || r.Body == http.NoBody {
		serve(r)
		return
	}
	limited := &body{ReadCloser: r.Body, control: http.NewResponseController(w), within: within}
	// In a copy: the server decides by the type of its own request's body whether the
	// connection can be used again.
	r = r.WithContext(r.Context())
	r.Body = limited
	defer limited.drain(r)
	serve(r)
}

func tooLarge(most int64) *Error {
	return Refuse(http.StatusRequestEntityTooLarge, problem.TooLarge, "the body has more than "+strconv.FormatInt(most, 10)+" bytes")
}

func tooSlow(within time.Duration) *Error {
	return Refuse(http.StatusRequestTimeout, problem.Timeout, "the body did not arrive within "+within.String())
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
