package main

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/topic/api"
)

func newTopicDelayedCommand() *cobra.Command {
	var f remoteFlags
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
			c, err := f.topicHTTP(command)
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
	var f remoteFlags
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
			c, err := f.topicHTTP(command)
			if err != nil {
				return err
			}
			return c.cancel(command.Context(), args[0], args[1])
		},
	}
	f.add(command)
	return command
}

func (c *topicHTTP) list(ctx context.Context, name string, limit int) error {
	var list api.DelayedList
	if err := c.do(ctx, http.MethodGet, "/v1/topics/"+url.PathEscape(name)+"/delayed?limit="+strconv.Itoa(limit), nil, &list); err != nil {
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

func (c *topicHTTP) cancel(ctx context.Context, name, id string) error {
	if err := c.do(ctx, http.MethodDelete, "/v1/topics/"+url.PathEscape(name)+"/delayed/"+url.PathEscape(id), nil, nil); err != nil {
		return err
	}
	return c.tell(struct {
		Topic    string `json:"topic"`
		ID       string `json:"id"`
		Canceled bool   `json:"canceled"`
	}{name, id, true}, "%s canceled in %s", printable(id), name)
}
