package client

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/sluice-project/sluice/internal/jsonclient"
	"github.com/sluice-project/sluice/room"
)

// maxAnswer is the most bytes of an answer that is held in memory.
const maxAnswer = 16 << 20

// Client calls one server. It is safe for concurrent use.
type Client struct{ api *jsonclient.Client }

// Option is an option of New.
type Option func(*Client)

// WithHTTPClient sets the HTTP client. Default: one with the default transport.
func WithHTTPClient(client *http.Client) Option { return func(c *Client) { c.api.HTTP = client } }

// WithToken sets the token that requests show, for a server with accounts. Default: none.
func WithToken(token string) Option { return func(c *Client) { c.api.Token = token } }

// WithAttempts sets the most attempts of a request that may be retried. Default 12: with
// the backoff, about half a minute.
func WithAttempts(n int) Option { return func(c *Client) { c.api.Retry.Attempts = max(1, n) } }

// New returns a client of the server at a URL, such as http://127.0.0.1:8080.
func New(baseURL string, options ...Option) (*Client, error) {
	api, err := jsonclient.New(baseURL, maxAnswer)
	if err != nil {
		return nil, err
	}
	api.Refused = refused
	c := &Client{api}
	for _, option := range options {
		option(c)
	}
	return c, nil
}

type call = jsonclient.Call

// ask makes a call and returns its answer.
func ask[T any](ctx context.Context, c *Client, call call) (answer T, err error) {
	_, err = c.api.Do(ctx, call, &answer)
	return answer, err
}

// do makes a call without an answer.
func (c *Client) do(ctx context.Context, call call) error {
	_, err := c.api.Do(ctx, call, nil)
	return err
}

// at returns a path below /v1/rooms.
func at(parts ...string) string { return jsonclient.Path("/v1/rooms", parts...) }

// Error is the server's refusal of a request.
type Error struct {
	// Status is the HTTP status, Title its text.
	Status int
	Title  string
	// Code is for callers to branch on. It is empty if the answer is not from this API,
	// but from a proxy perhaps.
	Code string
	// Detail says what was wrong.
	Detail string
	// Reason is why a place is gone; empty if none is.
	Reason room.Reason
	// RetryAfter is when a retry may help; 0 if the server did not say.
	RetryAfter time.Duration

	problem *jsonclient.Error
}

func (e *Error) Error() string { return e.problem.Error() }

// Unwrap returns the refusal as all parts have it.
func (e *Error) Unwrap() error { return e.problem }

func refused(p *jsonclient.Error) error {
	return &Error{p.Status, p.Title, p.Code, p.Detail, room.Reason(p.Reason), p.RetryAfter, p}
}

// IsStatus reports whether an error is a refusal with that status, such as
// http.StatusNotFound.
func IsStatus(err error, status int) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Status == status
}
