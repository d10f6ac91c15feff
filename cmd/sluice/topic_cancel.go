package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/topic/api"
)

// delayedClient asks a server's HTTP API for delayed records: the Kafka protocol
// has no request for them.
type delayedClient struct {
	base     string
	json     bool
	out, err screen
}

const (
	// delayedTimeout bounds one request.
	delayedTimeout = 30 * time.Second
	// maxDelayedAnswer is the most bytes of an answer.
	maxDelayedAnswer = 4 << 20
)

// delayedFlags are those of the commands about delayed records.
type delayedFlags struct {
	server string
	json   bool
}

func (f *delayedFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&f.server, "server", "", "`URL` of the server (default $"+serverVariable+", or "+defaultServer+")")
	command.Flags().BoolVar(&f.json, "json", false, "print JSON")
}

func (f *delayedFlags) client(command *cobra.Command) (*delayedClient, error) {
	base := cmp.Or(f.server, os.Getenv(serverVariable), defaultServer)
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) {
		return nil, wrongUsage("--server: %q: want a URL, such as %s", base, defaultServer)
	}
	return &delayedClient{
		base: strings.TrimSuffix(base, "/"), json: f.json,
		out: screenOf(command.OutOrStdout()), err: screenOf(command.ErrOrStderr()),
	}, nil
}

func newTopicDelayedCommand() *cobra.Command {
	var f delayedFlags
	var limit int
	command := &cobra.Command{
		Use:   "delayed TOPIC",
		Short: "List the records of a topic that wait until they are due",
		Example: `  sluice topic delayed reminders
  sluice topic delayed reminders --limit 1000 --json | jq -r .id`,
		Args: oneTopic,
		RunE: func(command *cobra.Command, args []string) error {
			if limit < 1 || limit > api.MaxDelayed {
				return wrongUsage("--limit: %d: want 1 to %d", limit, api.MaxDelayed)
			}
			c, err := f.client(command)
			if err != nil {
				return err
			}
			return c.list(command.Context(), args[0], limit)
		},
	}
	command.Flags().IntVar(&limit, "limit", 100, "list at most so many, those first that are due first")
	f.add(command)
	return command
}

func newTopicCancelCommand() *cobra.Command {
	var f delayedFlags
	command := &cobra.Command{
		Use:   "cancel TOPIC ID",
		Short: "Cancel a delayed record before it is due",
		Long: `Cancel a delayed record before it is due: it never appears. Its id is its header
sluice-id, or made for it; "sluice topic delayed" lists them.`,
		Example: `  sluice topic cancel reminders call-4711`,
		Args: func(_ *cobra.Command, args []string) error {
			if len(args) != 2 {
				return wrongUsage(`give a topic and the id of a record; "sluice topic delayed TOPIC" shows them`)
			}
			return nil
		},
		RunE: func(command *cobra.Command, args []string) error {
			c, err := f.client(command)
			if err != nil {
				return err
			}
			return c.cancel(command.Context(), args[0], args[1])
		},
	}
	f.add(command)
	return command
}

func (c *delayedClient) list(ctx context.Context, name string, limit int) error {
	var list api.DelayedList
	if err := c.do(ctx, http.MethodGet, "/v1/topics/"+url.PathEscape(name)+"/delayed?limit="+strconv.Itoa(limit), &list); err != nil {
		return err
	}
	if c.json {
		encoder := json.NewEncoder(c.out)
		for i := range list.Delayed {
			if err := encoder.Encode(&list.Delayed[i]); err != nil {
				return err
			}
		}
		return nil
	}
	if len(list.Delayed) == 0 {
		fmt.Fprintln(c.err, "no delayed records")
		return nil
	}
	g := grid{Header: []string{"due", "partition", "id"}, Left: map[int]bool{0: true, 2: true}}
	for _, record := range list.Delayed {
		g.Rows = append(g.Rows, []string{record.DeliverAt.UTC().Format("2006-01-02T15:04:05.000Z"), strconv.Itoa(int(record.Partition)), printable(record.ID)})
	}
	g.Write(c.out, c.out.Columns())
	if len(list.Delayed) == limit {
		fmt.Fprintf(c.err, "the first %d; --limit lists more\n", limit)
	}
	return nil
}

func (c *delayedClient) cancel(ctx context.Context, name, id string) error {
	if err := c.do(ctx, http.MethodDelete, "/v1/topics/"+url.PathEscape(name)+"/delayed/"+url.PathEscape(id), nil); err != nil {
		return err
	}
	if c.json {
		return json.NewEncoder(c.out).Encode(struct {
			Topic    string `json:"topic"`
			ID       string `json:"id"`
			Canceled bool   `json:"canceled"`
		}{name, id, true})
	}
	fmt.Fprintf(c.out, "%s canceled in %s\n", printable(id), name)
	return nil
}

// do makes a request, and reads the answer into a JSON object unless it is nil.
func (c *delayedClient) do(ctx context.Context, method, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, delayedTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, method, c.base+path, nil)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		if unreachable := unreachable(c.base, err); unreachable != nil {
			return unreachable
		}
		return err
	}
	defer response.Body.Close() // It was only read.
	body, err := io.ReadAll(io.LimitReader(response.Body, maxDelayedAnswer))
	if err != nil {
		return fmt.Errorf("read the answer of %s: %w", c.base, err)
	}
	if response.StatusCode >= 300 {
		var problem api.Problem
		if json.Unmarshal(body, &problem) == nil && problem.Detail != "" {
			return errors.New(problem.Detail)
		}
		return fmt.Errorf("%s answered %s: is it a sluice server with topics?", c.base, response.Status)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(body, into); err != nil {
		return fmt.Errorf("the answer of %s is not what this API has: %w", c.base, err)
	}
	return nil
}
