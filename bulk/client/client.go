package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"go.opentelemetry.io/otel/propagation"

	"github.com/sluice-project/sluice/retry"
)

const (
	// requestTimeout bounds one attempt of a request that is neither an upload
	// nor a stream, beyond the time that it asks the server to wait.
	requestTimeout = 30 * time.Second
	// uploadTimeout bounds one attempt to send one chunk.
	uploadTimeout = 2 * time.Minute
	// maxAnswer is the most bytes of an answer that is held in memory.
	maxAnswer = 64 << 20
)

// Client calls one server. It is safe for concurrent use.
type Client struct {
	base  string
	http  *http.Client
	retry retry.Policy
	chunk chunkLimits
}

// Option changes what New makes.
type Option func(*Client)

// WithHTTPClient sets what makes the requests. It should have no timeout of its
// own, which would end a watch. Default: a client with the default transport.
func WithHTTPClient(client *http.Client) Option { return func(c *Client) { c.http = client } }

// WithAttempts sets how often a request that may be made again is made at most.
// Default 12: with the backoff, about half a minute.
func WithAttempts(n int) Option { return func(c *Client) { c.retry.Attempts = max(1, n) } }

// WithChunk sets the most jobs and bytes of one chunk of an upload. Default
// 10,000 jobs and 4 MiB. The server takes up to 32 MiB.
func WithChunk(jobs, size int) Option {
	return func(c *Client) { c.chunk = chunkLimits{jobs: max(1, jobs), size: max(1, size)} }
}

// New returns a client of the server at a URL, such as http://127.0.0.1:8080.
func New(baseURL string, options ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("server %q: want a URL such as http://127.0.0.1:8080", baseURL)
	}
	c := &Client{
		base:  strings.TrimSuffix(u.String(), "/"),
		http:  &http.Client{},
		retry: retry.Default,
		chunk: chunkLimits{jobs: 10_000, size: 4 << 20},
	}
	for _, option := range options {
		option(c)
	}
	return c, nil
}

// call is one request and what may be done with it.
type call struct {
	method, path string
	query        url.Values
	body         any // Is sent as JSON; nil is no body.
	// once marks a request that must not be made again after a failure.
	once bool
	// wait is how long the server was asked to wait.
	wait time.Duration
}

// do makes a call and reads the answer into a JSON object; nil if it has none.
func (c *Client) do(ctx context.Context, call call, into any) error {
	var body []byte
	if call.body != nil {
		var err error
		if body, err = json.Marshal(call.body); err != nil {
			return fmt.Errorf("%s %s: %w", call.method, call.path, err)
		}
	}
	attempt := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout+call.wait)
		defer cancel()
		request, err := c.request(ctx, call, body)
		if err != nil {
			return err
		}
		return c.answer(request, into)
	}
	if call.once {
		return attempt(ctx)
	}
	return c.retry.Do(ctx, passing, attempt)
}

func (c *Client) request(ctx context.Context, call call, body []byte) (*http.Request, error) {
	target := c.base + call.path
	if len(call.query) > 0 {
		target += "?" + call.query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, call.method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	propagation.TraceContext{}.Inject(ctx, propagation.HeaderCarrier(request.Header))
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	return request, nil
}

// answer makes a request and reads its answer: an *Error if it was refused.
func (c *Client) answer(request *http.Request, into any) error {
	response, err := c.open(request)
	if err != nil {
		return err
	}
	defer closeBody(response)
	if into == nil {
		return nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return &connectionError{fmt.Errorf("%s %s: read the answer: %w", request.Method, request.URL.Path, err)}
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("%s %s: the answer is not what this API has: %w", request.Method, request.URL.Path, err)
	}
	return nil
}

// open makes a request and returns the response, which is a success.
func (c *Client) open(request *http.Request) (*http.Response, error) {
	response, err := c.http.Do(request)
	if err != nil {
		return nil, &connectionError{err}
	}
	if response.StatusCode < 200 || response.StatusCode > 299 {
		defer closeBody(response)
		return nil, refusal(response)
	}
	return response, nil
}

// closeBody reads what is left, so that the connection can be used again.
func closeBody(response *http.Response) {
	_, _ = io.CopyN(io.Discard, response.Body, 256<<10)
	_ = response.Body.Close()
}

// at builds a path from parts that may contain any character.
func at(parts ...string) string {
	var path strings.Builder
	path.WriteString("/v1")
	for _, part := range parts {
		path.WriteString("/" + url.PathEscape(part))
	}
	return path.String()
}

// query leaves out what is empty or 0.
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
