package quota

import (
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/access/api"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
)

const path = "/v1/quotas"

// Command returns "sluice quota" with its commands.
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "quota",
		Short: "List and set the quotas of users, Kafka clients and tenants",
		Long: `List and set quotas. They need a server with accounts, and a token with the role admin.

  of users                   max_topics, max_partitions, max_groups, max_rooms
  of users and client ids    producer_byte_rate, consumer_byte_rate
  of tenants                 requests_per_second

Rates hold over all instances and nodes together. docs/access.md says what each quota
bounds. What a tenant has stored is bounded by "sluice bulk tenant".`,
		Example: `  sluice quota set --user ada max_topics=20 max_partitions=100
  sluice quota set --user '<default>' max_rooms=5
  sluice quota set --tenant acme requests_per_second=50
  sluice quota set --user ada max_topics=none
  sluice quota list`,
	}
	command.AddCommand(newList(), newSet())
	return command
}

func newList() *cobra.Command {
	return remote.Command(&cobra.Command{
		Use: "list", Short: "List all quotas", Args: cobra.NoArgs,
		Example: `  sluice quota list
  sluice quota list --json | jq -r '.quotas[] | select(.values.max_rooms) | .user'`,
	}, func(ctx context.Context, c *remote.Client, _ []string) error {
		var all api.Quotas
		if err := c.Do(ctx, http.MethodGet, path, nil, &all); err != nil {
			return err
		}
		if c.JSON {
			return c.WriteJSON(all)
		}
		type column = term.Column[api.Quota]
		term.TableOf(all.Quotas,
			column{Header: "of", Words: true, Cell: entity},
			column{Header: "quotas", Words: true, Cell: values},
		).Write(c.Out, c.Out.Columns())
		return nil
	})
}

func newSet() *cobra.Command {
	var change api.Quota
	command := remote.Command(&cobra.Command{
		Use:   "set KEY=VALUE...",
		Short: "Set quotas of a user, a client id or a tenant, or remove them",
		Long: `Set the given quotas, and show all that the user, client id or tenant has then; none removes
one. <default> stands for all without a quota of their own. What exists already stays, also
if it is more.`,
		Example: `  sluice quota set --user ada max_topics=20 max_partitions=100
  sluice quota set --tenant acme requests_per_second=50
  sluice quota set --user ada max_topics=none`,
		Args: cobra.MinimumNArgs(1),
	}, func(ctx context.Context, c *remote.Client, args []string) error {
		var err error
		if change.Values, err = parse(args); err != nil {
			return err
		}
		var now api.Quota
		if err := c.Do(ctx, http.MethodPatch, path, change, &now); err != nil {
			return err
		}
		return c.Tell(now, "%s: %s", entity(&now), values(&now))
	})
	flags := command.Flags()
	flags.StringVar(&change.User, "user", "", "`NAME` of an account, or <default>")
	flags.StringVar(&change.Client, "client-id", "", "`ID` that Kafka clients give, or <default>")
	flags.StringVar(&change.Tenant, "tenant", "", "`TENANT`, or <default>")
	return command
}

// parse reads quotas as key=value; none is 0, which removes one.
func parse(args []string) (map[string]float64, error) {
	parsed := map[string]float64{}
	for _, arg := range args {
		key, text, _ := strings.Cut(arg, "=")
		value, err := strconv.ParseUint(text, 10, 53)
		if text != "none" && (err != nil || value == 0) {
			return nil, exit.Usage("%q: want a quota and a whole number of at least 1, such as max_topics=20, or max_topics=none to remove it", arg)
		}
		parsed[key] = float64(value)
	}
	return parsed, nil
}

// entity describes whom quotas are of.
func entity(q *api.Quota) string {
	var parts []string
	for _, of := range [...]struct{ kind, name string }{{"user", q.User}, {"client id", q.Client}, {"tenant", q.Tenant}} {
		if of.name != "" {
			parts = append(parts, of.kind+" "+of.name)
		}
	}
	return term.Printable(strings.Join(parts, ", "))
}

// values describes quotas.
func values(q *api.Quota) string {
	var parts []string
	for _, key := range slices.Sorted(maps.Keys(q.Values)) {
		parts = append(parts, fmt.Sprintf("%s=%.0f", key, q.Values[key]))
	}
	if len(parts) == 0 {
		return "no quota"
	}
	return strings.Join(parts, " ")
}
