package main

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

	"github.com/sluice-project/sluice/topic/api"
)

// topicHTTP is one run of a command that asks a server's HTTP API about topics:
// for what the Kafka protocol has no request for.
type topicHTTP struct {
	base     string
	json     bool
	out, err screen
}

const (
	// topicHTTPTimeout bounds one request.
	topicHTTPTimeout = 30 * time.Second
	// maxTopicAnswer is the most bytes of an answer.
	maxTopicAnswer = 4 << 20
)

func (f *remoteFlags) topicHTTP(command *cobra.Command) (*topicHTTP, error) {
	base, err := f.base()
	if err != nil {
		return nil, err
	}
	return &topicHTTP{
		base: strings.TrimSuffix(base, "/"), json: f.json,
		out: screenOf(command.OutOrStdout()), err: screenOf(command.ErrOrStderr()),
	}, nil
}

// withTopicHTTP runs what a command does on its server.
func (f *remoteFlags) withTopicHTTP(do func(ctx context.Context, c *topicHTTP, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		c, err := f.topicHTTP(command)
		if err != nil {
			return err
		}
		return do(command.Context(), c, args)
	}
}

// do makes a request, with a body and an answer in JSON unless they are nil.
func (c *topicHTTP) do(ctx context.Context, method, path string, body, into any) error {
	ctx, cancel := context.WithTimeout(ctx, topicHTTPTimeout)
	defer cancel()
	var content io.Reader
	if body != nil {
		encoded, err := json.Marshal(body)
		if err != nil {
			return err
		}
		content = bytes.NewReader(encoded)
	}
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, content)
	if err != nil {
		return err
	}
	if body != nil {
		request.Header.Set("Content-Type", "application/json")
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		if unreachable := unreachable(c.base, err); unreachable != nil {
			return unreachable
		}
		return err
	}
	defer response.Body.Close() // It was only read.
	answer, err := io.ReadAll(io.LimitReader(response.Body, maxTopicAnswer))
	switch {
	case err != nil:
		return fmt.Errorf("read the answer of %s: %w", c.base, err)
	case response.StatusCode >= http.StatusMultipleChoices:
		return c.refused(response, answer)
	case into == nil:
		return nil
	}
	if err := json.Unmarshal(answer, into); err != nil {
		return fmt.Errorf("the answer of %s is not what this API has: %w", c.base, err)
	}
	return nil
}

// refused is the error of an answer that is no success: a usage error where the
// flags got it wrong.
func (c *topicHTTP) refused(response *http.Response, answer []byte) error {
	var problem api.Problem
	switch {
	case json.Unmarshal(answer, &problem) != nil || problem.Detail == "":
		return fmt.Errorf("%s answered %s: is it a sluice server with topics?", c.base, response.Status)
	case slices.Contains([]int{http.StatusBadRequest, http.StatusUnprocessableEntity}, response.StatusCode):
		return wrongUsage("%s", problem.Detail)
	}
	return errors.New(problem.Detail)
}

// tell writes what came of a command: a sentence, or with --json an object.
func (c *topicHTTP) tell(object any, format string, args ...any) error {
	if c.json {
		return json.NewEncoder(c.out).Encode(object)
	}
	fmt.Fprintf(c.out, format+"\n", args...)
	return nil
}
