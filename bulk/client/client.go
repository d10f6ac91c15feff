package client

import (
	"context"
	"errors"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/sluice-project/sluice/internal/jsonclient"
)

const (
	// uploadTimeout bounds one attempt to send one chunk.
	uploadTimeout = 2 * time.Minute
	// maxAnswer is the maximum size of an answer that is held in memory.
	maxAnswer = 64 << 20
)

// Client calls one server. It is safe for concurrent use.
type Client struct {
	api   *jsonclient.Client
	chunk chunkLimits
}

// Option is an option of New.
type Option func(*Client)

// WithHTTPClient sets the HTTP client. It should have no timeout of its own, which would end
// a watch. Default: a client with the default transport.
func WithHTTPClient(client *http.Client) Option { return func(c *Client) { c.api.HTTP = client } }

// WithToken sets the token that requests show, for a server with accounts. Default: none.
func WithToken(token string) Option { return func(c *Client) { c.api.Token = token } }

// WithAttempts sets the maximum of attempts of a request that is safe to repeat. Default 12:
// with the backoff, about half a minute.
func WithAttempts(n int) Option { return func(c *Client) { c.api.Retry.Attempts = max(1, n) } }

// WithChunk sets the maximum of jobs and bytes of one chunk of an upload. Default 10,000 jobs
// and 4 MiB. The server accepts up to 32 MiB.
func WithChunk(jobs, size int) Option {
	return func(c *Client) { c.chunk = chunkLimits{jobs: max(1, jobs), size: max(1, size)} }
}

// New returns a client of the server at a URL, such as http://127.0.0.1:8080.
func New(baseURL string, options ...Option) (*Client, error) {
	api, err := jsonclient.New(baseURL, maxAnswer)
	if err != nil {
		return nil, err
	}
	api.Prepare = func(request *http.Request) {
		propagation.TraceContext{}.Inject(request.Context(), propagation.HeaderCarrier(request.Header))
	}
	c := &Client{api: api, chunk: chunkLimits{jobs: 10_000, size: 4 << 20}}
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

// at returns a path below /v1.
func at(parts ...string) string { return jsonclient.Path("/v1", parts...) }

// query returns a query without empty and zero values.
func query(pairs ...any) url.Values {
	values := url.Values{}
	for i := 0; i < len(pairs); i += 2 {
		name := pairs[i].(string)
		switch value := pairs[i+1].(type) {
		case string:
			if value != "" {
				values.Set(name, value)
			}
		case int:
			if value != 0 {
				values.Set(name, strconv.Itoa(value))
			}
		case int64:
			if value != 0 {
				values.Set(name, strconv.FormatInt(value, 10))
			}
		}
	}
	return values
}

// Error is the server's refusal of a request, with the server's description.
type Error = jsonclient.Error

// IsCode reports whether an error is a refusal with that code, such as wire.CodeNotFound.
func IsCode(err error, code string) bool {
	var refused *Error
	return errors.As(err, &refused) && refused.Code == code
}
