package webhook

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/tracing"
)

// Handler runs each job as one HTTP request to its action's target. It is safe
// for concurrent use.
type Handler struct {
	options Options
	secrets keyring
}

var _ bulk.Handler = (*Handler)(nil)

// New returns a handler. The error says which option is out of range, or which
// secret is not one.
func New(options Options) (*Handler, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	secrets, err := newKeyring(options.Secrets, options.TargetSecrets)
	if err != nil {
		return nil, err
	}
	return &Handler{options: options, secrets: secrets}, nil
}

// Close closes the connections that no request is using.
func (h *Handler) Close() {
	if t, ok := h.options.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Handle makes one attempt: one request, which ends with ctx at the latest. Its
// errors say what became of the attempt in the terms of bulk.Handler; those that
// report an answer other than 2xx wrap a *[StatusError], except for a
// *bulk.ThrottledError.
func (h *Handler) Handle(ctx context.Context, job *bulk.Job) ([]byte, error) {
	request, err := h.newRequest(ctx, job, time.Now())
	if err != nil {
		return nil, err
	}
	ctx, sent := tracing.Send(ctx, request.Method, request.URL)
	tracing.Outgoing(ctx, request.Header)
	response, err := h.options.Transport.RoundTrip(request.WithContext(ctx))
	if err != nil {
		err = unreachable(ctx, request.URL.Host, err)
		sent.Failed(err)
		return nil, err
	}
	defer response.Body.Close()
	body, err := h.read(response.Body)
	if err != nil {
		sent.Failed(oneLineError{err})
	} else {
		sent.Answered(response.StatusCode)
	}
	if response.StatusCode >= 200 && response.StatusCode < 300 {
		if err != nil {
			return nil, unreachable(ctx, request.URL.Host, fmt.Errorf("the answer broke off: %w", err))
		}
		return h.result(body), nil
	}
	// What the status says holds even where its body broke off.
	return nil, refusal(request.URL.Host, response, body, time.Now())
}

// newRequest builds the request of one attempt made now.
func (h *Handler) newRequest(ctx context.Context, job *bulk.Job, now time.Time) (*http.Request, error) {
	target := job.Spec.Target
	if target == nil {
		return nil, finalError{fmt.Errorf("action %q has no target: want one with a url", job.Spec.ID)}
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, target.URL, bytes.NewReader(job.Payload))
	if err != nil || request.URL.Host == "" || (request.URL.Scheme != "http" && request.URL.Scheme != "https") {
		// The parser's error would quote the URL, which may hold a password.
		return nil, finalError{fmt.Errorf("target %q: want an http or https URL with a host", target.Name)}
	}
	if h.options.AllowTarget != nil {
		if err := h.options.AllowTarget(request.URL); err != nil {
			return nil, finalError{fmt.Errorf("target %s is not allowed: %w", request.URL.Host, err)}
		}
	}
	if user := request.URL.User; user != nil {
		password, _ := user.Password()
		request.SetBasicAuth(user.Username(), password)
	}
	h.setHeaders(request.Header, job, now)
	return request, nil
}

func (h *Handler) setHeaders(header http.Header, job *bulk.Job, now time.Time) {
	id := job.ID()
	header.Set("Content-Type", "application/json")
	header.Set("User-Agent", h.options.UserAgent)
	header.Set(HeaderID, id)
	header.Set(HeaderTimestamp, strconv.FormatInt(now.Unix(), 10))
	if keys := h.secrets.keys(job.Spec.Target.Name); len(keys) > 0 {
		header.Set(HeaderSignature, signAll(keys, id, now, job.Payload))
	}
	header.Set("Sluice-Action", job.Spec.ID)
	header.Set("Sluice-Tenant", headerValue(job.Spec.Tenant))
	header.Set("Sluice-Attempt", strconv.Itoa(job.Attempt))
	// webhook-id makes the request idempotent. An empty list says so to the
	// transport without sending the header: a kept connection that the target
	// had just closed then costs a new connection, not an attempt.
	header["Idempotency-Key"] = nil
}

// read returns the body up to one byte more than may be a result. What follows
// is drained, so that the connection can be used again, unless it is too much.
func (h *Handler) read(body io.Reader) ([]byte, error) {
	read, err := io.ReadAll(io.LimitReader(body, h.options.MaxResponseBytes+1))
	if err == nil && int64(len(read)) > h.options.MaxResponseBytes {
		// A failure here only costs the connection: the result is decided.
		_, _ = io.CopyN(io.Discard, body, h.options.MaxResponseBytes-1)
	}
	return read, err
}

// unreachable is the error of an attempt that got no answer.
func unreachable(ctx context.Context, host string, err error) error {
	switch ctxErr := ctx.Err(); {
	case errors.Is(ctxErr, context.DeadlineExceeded):
		err = fmt.Errorf("no full answer within the attempt's timeout: %w", ctxErr)
	case ctxErr != nil:
		err = fmt.Errorf("the attempt was stopped before a full answer: %w", ctxErr)
	}
	return oneLineError{fmt.Errorf("target %s: %w", host, err)}
}

// oneLineError is an error whose text has no line breaks, whatever it quotes.
type oneLineError struct{ error }

func (e oneLineError) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLineError) Unwrap() error { return e.error }

// finalError is an error that fails the job for good.
type finalError struct{ error }

func (e finalError) Error() string   { return oneLineError(e).Error() }
func (e finalError) Unwrap() []error { return []error{e.error, bulk.SkipRetry} }

// headerValue percent-encodes what a header cannot carry to every reader in the
// same way: all but visible ASCII, and the percent sign itself.
func headerValue(s string) string {
	var encoded strings.Builder
	for i := range len(s) {
		if c := s[i]; c > ' ' && c <= '~' && c != '%' {
			encoded.WriteByte(c)
		} else {
			fmt.Fprintf(&encoded, "%%%02X", c)
		}
	}
	return encoded.String()
}
