package client

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/sluice-project/sluice/retry"
)

const (
	// requestTimeout bounds one attempt of a request.
	requestTimeout = 30 * time.Second
	// maxAnswer is the most bytes of an answer that is held in memory.
	maxAnswer = 16 << 20
)

// Client calls one server. It is safe for concurrent use.
type Client struct {
	base  string
	http  *http.Client
	retry retry.Policy
}

// Option changes what New makes.
type Option func(*Client)

// WithHTTPClient sets what makes the requests. Default: a client with the default
// transport.
func WithHTTPClient(client *http.Client) Option { return func(c *Client) { c.http = client } }

// WithAttempts sets how often a request that may be made again is made at most.
// Default 12: with the backoff, about half a minute.
func WithAttempts(n int) Option { return func(c *Client) { c.retry.Attempts = max(1, n) } }

// New returns a client of the server at a URL, such as http://127.0.0.1:8080.
func New(baseURL string, options ...Option) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("server %q: want a URL such as http://127.0.0.1:8080", baseURL)
	}
	c := &Client{base: strings.TrimSuffix(u.String(), "/"), http: &http.Client{}, retry: retry.Default}
	for _, option := range options {
		option(c)
	}
	return c, nil
}

// call is one request and what may be done with it.
type call struct {
	method, path string
	body         any // Is sent as JSON; nil is no body.
	// bearer is the ticket or pass that is shown.
	bearer string
	// once marks a request that must not be made again after a failure.
	once bool
}

// do makes a call and reads the answer into a JSON object, if into is not nil. It
// returns the status, which is that of a success.
func (c *Client) do(ctx context.Context, call call, into any) (status int, err error) {
	var body []byte
	if call.body != nil {
		if body, err = json.Marshal(call.body); err != nil {
			return 0, fmt.Errorf("%s %s: %w", call.method, call.path, err)
		}
	}
	attempt := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout)
		defer cancel()
		var err error
		status, err = c.attempt(ctx, call, body, into)
		return err
	}
	if call.once {
		return status, attempt(ctx)
	}
	err = c.retry.Do(ctx, passing, attempt)
	return status, err
}

// attempt makes a call once.
func (c *Client) attempt(ctx context.Context, call call, body []byte, into any) (status int, err error) {
	request, err := http.NewRequestWithContext(ctx, call.method, c.base+call.path, bytes.NewReader(body))
	if err != nil {
		return 0, err
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if call.bearer != "" {
		request.Header.Set("Authorization", "Bearer "+call.bearer)
	}
	response, err := c.http.Do(request)
	if err != nil {
		return 0, &connectionError{err}
	}
	defer func() {
		_, _ = io.CopyN(io.Discard, response.Body, 256<<10) // so that the connection can be used again
		_ = response.Body.Close()
	}()
	if response.StatusCode < 200 || response.StatusCode > 299 {
		return response.StatusCode, refusal(response)
	}
	if into == nil {
		return response.StatusCode, nil
	}
	text, err := io.ReadAll(io.LimitReader(response.Body, maxAnswer))
	if err != nil {
		return 0, &connectionError{fmt.Errorf("%s %s: read the answer: %w", call.method, call.path, err)}
	}
	if err := json.Unmarshal(text, into); err != nil {
		return 0, fmt.Errorf("%s %s: the answer is not what this API has: %w", call.method, call.path, err)
	}
	return response.StatusCode, nil
}

// at builds a path below /v1/rooms from parts that may contain any character.
func at(parts ...string) string {
	var path strings.Builder
	path.WriteString("/v1/rooms")
	for _, part := range parts {
		path.WriteString("/" + url.PathEscape(part))
	}
	return path.String()
}
