package remote

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// Client makes requests to the HTTP API of a server, for one run of a command.
type Client struct {
	term.Output
	base string
	http *http.Client
}

const (
	// requestTimeout bounds one request.
	requestTimeout = 30 * time.Second
	// maxAnswerBytes bounds an answer.
	maxAnswerBytes = 4 << 20
)

// Open returns a client of the server that the flags name. It connects with the
// first request.
func (f *Flags) Open(command *cobra.Command) (*Client, error) {
	base, client, err := Server(command)
	if err != nil {
		return nil, err
	}
	return &Client{term.OutputOf(command, f.JSON), strings.TrimSuffix(base, "/"), client}, nil
}

// Command gives a command the flags of a server, and runs do with a client of it.
func Command(command *cobra.Command, do func(ctx context.Context, c *Client, args []string) error) *cobra.Command {
	var f Flags
	f.Add(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		c, err := f.Open(command)
		if err != nil {
			return err
		}
		return do(command.Context(), c, args)
	}
	return command
}

// Fetch makes a request, with a body in JSON unless it is nil, and returns the answer, of which it
// reads at most 4 MiB.
func (c *Client) Fetch(ctx context.Context, method, path string, body any) ([]byte, error) {
	ctx, cancel := context.WithTimeout(ctx, requestTimeout)
	defer cancel()
	response, err := c.Send(ctx, method, path, body)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close() // It was only read.
	if response.StatusCode >= http.StatusMultipleChoices {
		return nil, c.Refusal(response, " with topics")
	}
	return c.read(response)
}

// Do makes a request. The body and the answer are JSON; each may be nil.
func (c *Client) Do(ctx context.Context, method, path string, body, into any) error {
	answer, err := c.Fetch(ctx, method, path, body)
	switch {
	case err != nil:
		return err
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("the answer of %s is not what this API has: %w", c.base, err)
	}
	return nil
}

// Send makes a request, with a body in JSON unless it is nil, and returns the answer, whatever its
// status; the caller closes it. The time is bounded by ctx alone.
func (c *Client) Send(ctx context.Context, method, path string, body any) (*http.Response, error) {
	content := &bytes.Buffer{}
	if body != nil {
		if err := json.NewEncoder(content).Encode(body); err != nil {
			return nil, err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return nil, err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := c.http.Do(request)
	if unreachable := Unreachable(c.base, err); unreachable != nil {
		return nil, unreachable
	}
	return response, err
}

func (c *Client) read(response *http.Response) ([]byte, error) {
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxAnswerBytes))
	if err != nil {
		return nil, fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	return answer, nil
}

// Refusal returns the error of an unsuccessful answer: a usage error if the request was wrong. If the
// answer is none of a server's, the error asks whether it is a sluice server of that kind.
func (c *Client) Refusal(response *http.Response, kind string) error {
	answer, err := c.read(response)
	if err != nil {
		return err
	}
	var problem struct{ Detail string }
	switch {
	case json.Unmarshal(answer, &problem) != nil || problem.Detail == "":
		return fmt.Errorf("%s answered %s: is it a sluice server%s?", c.base, response.Status, kind)
	case slices.Contains([]int{http.StatusBadRequest, http.StatusUnprocessableEntity}, response.StatusCode):
		return exit.Usage("%s", problem.Detail)
	}
	return errors.New(problem.Detail)
}
