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
	"sync/atomic"
	"time"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/tracing"
)

// Handler runs each job as one HTTP request to its action's target. It is safe
// for concurrent use.
type Handler struct {
	options Options
	secrets atomic.Pointer[keyring]
}

var _ bulk.Handler = (*Handler)(nil)

// New returns a handler. It returns an error if an option is out of range, or a secret is
// invalid.
func New(options Options) (*Handler, error) {
	options, err := options.withDefaults()
	if err != nil {
		return nil, err
	}
	h := &Handler{options: options}
	return h, h.SetSecrets(options.Secrets, options.TargetSecrets)
}

// SetSecrets replaces the secrets of the options, from the next attempt on, unless one is
// invalid.
func (h *Handler) SetSecrets(common []string, targets map[string][]string) error {
	ring, err := newKeyring(common, targets)
	if err == nil {
		h.secrets.Store(&ring)
	}
	return err
}

// Close closes the idle connections.
func (h *Handler) Close() {
	if t, ok := h.options.Transport.(interface{ CloseIdleConnections() }); ok {
		t.CloseIdleConnections()
	}
}

// Handle makes one attempt: one request, which ends with ctx at the latest. Its errors follow
// the rules of bulk.Handler. Errors about an answer other than 2xx wrap a *[StatusError],
// except for a *bulk.ThrottledError.
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
	job.Cost = costOf(response.Header)
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
	// The status holds even if the body is incomplete.
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
	if user := request.URL.User; user != nil {
		password, _ := user.Password()
		request.SetBasicAuth(user.Username(), password)
	}
	return request, h.setHeaders(request, job, now)
}

func (h *Handler) setHeaders(request *http.Request, job *bulk.Job, now time.Time) error {
	header, id, timestamp := request.Header, job.ID(), strconv.FormatInt(now.Unix(), 10)
	keys, err := h.secrets.Load().keys(job)
	if err != nil {
		return err
	}
	header.Set("Content-Type", "application/json")
	header.Set("User-Agent", h.options.UserAgent)
	header.Set(HeaderID, id)
	header.Set(HeaderTimestamp, timestamp)
	if len(keys) > 0 {
		header.Set(HeaderSignature, signAll(keys, &message{id, timestamp, job.Spec.Tenant, audienceOf(request.URL), job.Payload}))
	}
	header.Set("Sluice-Action", job.Spec.ID)
	header.Set(headerTenant, headerValue(job.Spec.Tenant))
	if job.Spec.Key != "" {
		header.Set("Sluice-Key", headerValue(job.Spec.Key))
	}
	header.Set("Sluice-Attempt", strconv.Itoa(job.Attempt))
	// The header webhook-id makes the request idempotent. An empty list tells the transport
	// so without sending the header: if the target has just closed a kept connection, that
	// costs a new connection, not an attempt.
	header["Idempotency-Key"] = nil
	return nil
}

// read returns the body, up to one byte more than a result may have. It drains the rest,
// unless that is too long, so that the connection can be used again.
func (h *Handler) read(body io.Reader) ([]byte, error) {
	read, err := io.ReadAll(io.LimitReader(body, h.options.MaxResponseBytes+1))
	if err == nil && int64(len(read)) > h.options.MaxResponseBytes {
		// An error here costs only the connection.
		_, _ = io.CopyN(io.Discard, body, h.options.MaxResponseBytes-1)
	}
	return read, err
}

// unreachable is the error of an attempt that got no answer.
func unreachable(ctx context.Context, host string, err error) error {
	if refused := new(addressError); errors.As(err, &refused) {
		return finalError{fmt.Errorf("target %s has %w", host, refused)}
	}
	switch ctxErr := ctx.Err(); {
	case errors.Is(ctxErr, context.DeadlineExceeded):
		err = fmt.Errorf("no full answer within the attempt's timeout: %w", ctxErr)
	case ctxErr != nil:
		err = fmt.Errorf("the attempt was stopped before a full answer: %w", ctxErr)
	}
	return silence{oneLineError{fmt.Errorf("target %s: %w", host, err)}}
}

// silence is the error of an attempt that the target itself did not answer.
type silence struct{ error }

func (e silence) Unwrap() []error { return []error{e.error, bulk.ErrUnreachable} }

// oneLineError is an error whose text has no line breaks.
type oneLineError struct{ error }

func (e oneLineError) Error() string { return strings.Join(strings.Fields(e.error.Error()), " ") }
func (e oneLineError) Unwrap() error { return e.error }

// finalError is an error that fails the job permanently.
type finalError struct{ error }

func (e finalError) Error() string   { return oneLineError(e).Error() }
func (e finalError) Unwrap() []error { return []error{e.error, bulk.SkipRetry} }

// headerValue percent-encodes all bytes but visible ASCII, and the percent sign, since not
// all readers handle other bytes in a header alike.
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
