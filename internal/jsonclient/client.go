package jsonclient

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluice-project/sluice/internal/edge/problem"
	"github.com/sluice-project/sluice/internal/retry"
)

// requestTimeout bounds one attempt of a request. The time that the request asks the server
// to wait is added.
const requestTimeout = 30 * time.Second

// Client calls one server. It is safe for concurrent use.
type Client struct {
	HTTP  *http.Client
	Retry retry.Policy
	// MaxAnswer is the maximum size of an answer that is held in memory.
	MaxAnswer int64
	// Token is sent in the header Authorization of calls that have no Bearer, if it is not empty.
	Token string
	// Prepare, if not nil, changes each request before it is sent.
	Prepare func(*http.Request)
	// Refused, if not nil, replaces the error of a refusal. The result must wrap it.
	Refused func(*Error) error

	base string
}

// New returns a client of the server at a URL, such as http://127.0.0.1:8080.
func New(baseURL string, maxAnswer int64) (*Client, error) {
	u, err := url.Parse(baseURL)
	if err != nil || u.Host == "" || (u.Scheme != "http" && u.Scheme != "https") || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("server %q: want a URL such as http://127.0.0.1:8080", baseURL)
	}
	return &Client{base: strings.TrimSuffix(u.String(), "/"), HTTP: &http.Client{}, Retry: retry.Default, MaxAnswer: maxAnswer}, nil
}

// Call is one request, and how it may be repeated.
type Call struct {
	Method, Path string
	Query        url.Values
	Body         any // sent as JSON; nil is no body
	// Bearer is sent in the header Authorization in place of the client's token, if it is not empty.
	Bearer string
	// Once reports whether the request must not be repeated after a failure.
	Once bool
	// Wait is how long the server is asked to wait.
	Wait time.Duration
}

// Do makes a call and decodes the answer into a JSON object; nil if there is none. It
// returns the status of a success.
func (c *Client) Do(ctx context.Context, call Call, into any) (status int, err error) {
	var body []byte
	if call.Body != nil {
		if body, err = json.Marshal(call.Body); err != nil {
			return 0, fmt.Errorf("%s %s: %w", call.Method, call.Path, err)
		}
	}
	attempt := func(ctx context.Context) error {
		ctx, cancel := context.WithTimeout(ctx, requestTimeout+call.Wait)
		defer cancel()
		request, err := c.Request(ctx, call, body)
		if err == nil {
			status, err = c.Answer(request, into)
		}
		return err
	}
	if call.Once {
		err = attempt(ctx)
	} else {
		err = c.Retry.Do(ctx, Transient, attempt)
	}
	return status, err
}

// Request returns the request of a call, with a body in JSON; nil is no body.
func (c *Client) Request(ctx context.Context, call Call, body []byte) (*http.Request, error) {
	target := c.base + call.Path
	if len(call.Query) > 0 {
		target += "?" + call.Query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, call.Method, target, bytes.NewReader(body))
	if err != nil {
		return nil, err
	}
	request.Header.Set("Accept", "application/json")
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	if bearer := cmp.Or(call.Bearer, c.Token); bearer != "" {
		request.Header.Set("Authorization", "Bearer "+bearer)
	}
	if c.Prepare != nil {
		c.Prepare(request)
	}
	return request, nil
}

// Answer makes a request, decodes its answer and returns its status. It returns an *Error if
// the server refused it.
func (c *Client) Answer(request *http.Request, into any) (status int, err error) {
	response, err := c.Open(request)
	if err != nil {
		return 0, err
	}
	defer Close(response)
	if into == nil {
		return response.StatusCode, nil
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, c.MaxAnswer))
	if err != nil {
		return 0, &ConnectionError{fmt.Errorf("%s %s: read the answer: %w", request.Method, request.URL.Path, err)}
	}
	if err := json.Unmarshal(body, into); err != nil {
		return 0, fmt.Errorf("%s %s: the answer is not what this API has: %w", request.Method, request.URL.Path, err)
	}
	return response.StatusCode, nil
}

// Open makes a request and returns a successful response.
func (c *Client) Open(request *http.Request) (*http.Response, error) {
	response, err := c.HTTP.Do(request)
	if err != nil {
		return nil, &ConnectionError{err}
	}
	if response.StatusCode >= 200 && response.StatusCode <= 299 {
		return response, nil
	}
	defer Close(response)
	refused := refusal(response)
	if c.Refused != nil {
		return nil, c.Refused(refused)
	}
	return nil, refused
}

// Close reads the rest of a response, so that the connection can be used again.
func Close(response *http.Response) {
	_, _ = io.CopyN(io.Discard, response.Body, 256<<10)
	_ = response.Body.Close()
}

// Path appends parts, which may contain any character, to a path.
func Path(path string, parts ...string) string {
	for _, part := range parts {
		path += "/" + url.PathEscape(part)
	}
	return path
}

// Error is the server's refusal of a request.
type Error struct {
	// Problem is the server's description. A caller may branch on its Code, which is empty if
	// the answer came from elsewhere, such as a proxy.
	problem.Problem
	// RetryAfter is when a retry may succeed; 0 if the server did not say.
	RetryAfter time.Duration
}

func (e *Error) Error() string {
	return fmt.Sprintf("the server answered %d %s: %s", e.Status, e.Title, e.Detail)
}

// refusal decodes the problem of a response. Its status is that of the response.
func refusal(response *http.Response) *Error {
	text, _ := io.ReadAll(io.LimitReader(response.Body, 64<<10))
	e := &Error{}
	if json.Unmarshal(text, &e.Problem) != nil || e.Detail == "" {
		e.Problem = problem.Problem{Detail: fmt.Sprintf("%.200s", text)}
	}
	e.Status, e.Title = response.StatusCode, http.StatusText(response.StatusCode)
	if seconds, err := strconv.Atoi(response.Header.Get("Retry-After")); err == nil && seconds > 0 {
		e.RetryAfter = time.Duration(seconds) * time.Second
	}
	return e
}

// ConnectionError is the error of a request that may or may not have reached the server.
type ConnectionError struct{ Err error }

func (e *ConnectionError) Error() string { return e.Err.Error() }

// Unwrap returns the cause.
func (e *ConnectionError) Unwrap() error { return e.Err }

// Transient reports whether a retry may succeed, and the delay that the server asks for. Refusals of a quota
// without such a delay last until somebody acts.
func Transient(err error) (after time.Duration, ok bool) {
	var refused *Error
	if errors.As(err, &refused) {
		switch refused.Status {
		case http.StatusTooManyRequests:
			return refused.RetryAfter, refused.RetryAfter > 0 || refused.Code != problem.Quota
		case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout, http.StatusRequestTimeout:
			return refused.RetryAfter, true
		}
		return 0, false
	}
	var connection *ConnectionError
	return 0, errors.As(err, &connection)
}
