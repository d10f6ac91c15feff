package topic

import (
	"context"
	"net/http"
	"net/url"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/topic/api"
)

func newDelayedCommand() *cobra.Command {
	var limit int
	command := remote.Command(&cobra.Command{
		Use:   "delayed TOPIC",
		Short: "List the records of a topic that wait until they are due",
		Example: `  sluice topic delayed reminders
  sluice topic delayed reminders --limit 1000 --json | jq -r .id`,
		Args: oneTopic,
	}, func(ctx context.Context, c *remote.Client, args []string) error {
		if limit < 1 || limit > api.MaxDelayed {
			return exit.Usage("--limit: %d: want 1 to %d", limit, api.MaxDelayed)
		}
		return listDelayed(ctx, c, args[0], limit)
	})
	command.Flags().IntVar(&limit, "limit", 100, "list at most so many, those first that are due first")
	return command
}

func newCancelCommand() *cobra.Command {
	return remote.Command(&cobra.Command{
		Use:   "cancel TOPIC ID",
		Short: "Cancel a delayed record before it is due",
		Long: `Cancel a delayed record before it is due: it never appears. Its id is its header
sluice-id, or made for it; "sluice topic delayed" lists them.`,
		Example: `  sluice topic cancel reminders call-4711`,
		Args:    exit.Between(2, 2, `give a topic and the id of a record; "sluice topic delayed TOPIC" shows them`),
	}, func(ctx context.Context, c *remote.Client, args []string) error {
		return cancelDelayed(ctx, c, args[0], args[1])
	})
}

func listDelayed(ctx context.Context, c *remote.Client, name string, limit int) error {
	var list api.DelayedList
	if err := c.Do(ctx, http.MethodGet, "/v1/topics/"+url.PathEscape(name)+"/delayed?limit="+strconv.Itoa(limit), nil, &list); err != nil {
		return err
	}
	type column = term.Column[api.Delayed]
	if err := term.List(&c.Output, list.Delayed, "no delayed records",
		column{Header: "due", Words: true, Cell: func(r *api.Delayed) string { return r.DeliverAt.UTC().Format("2006-01-02T15:04:05.000Z") }},
		column{Header: "partition", Cell: func(r *api.Delayed) string { return strconv.Itoa(int(r.Partition)) }},
		column{Header: "id", Words: true, Cell: func(r *api.Delayed) string { return term.Printable(r.ID) }}); err != nil {
		return err
	}
	if len(list.Delayed) == limit {
		c.Say("the first %d; --limit lists more", limit)
	}
	return nil
}

func cancelDelayed(ctx context.Context, c *remote.Client, name, id string) error {
	if err := c.Do(ctx, http.MethodDelete, "/v1/topics/"+url.PathEscape(name)+"/delayed/"+url.PathEscape(id), nil, nil); err != nil {
		return err
	}
	return c.Tell(struct {
		Topic    string `json:"topic"`
		ID       string `json:"id"`
		Canceled bool   `json:"canceled"`
	}{name, id, true}, "%s canceled in %s", term.Printable(id), name)
}
