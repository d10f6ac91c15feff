package token

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/access/api"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// Command returns "sluice token" with its commands.
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "token",
		Short: "Create, list, rotate and revoke the tokens of a server with accounts",
		Long: `Create, list, rotate and revoke tokens. A server with access.admin_token has accounts: each
request shows a token. All commands take theirs from --token-file or SLUICE_TOKEN; these
need one with the role admin, such as the admin token itself.

The roles are admin, operator, viewer, submitter (of tenants), worker (of job types),
shop (of rooms), producer (to topics) and consumer (of topics, in groups): docs/access.md.`,
		Example: `  sluice token create ci --role submitter --tenant acme --expires 720h
  sluice token create mailer --role worker --type email > mailer.token
  sluice token list
  sluice token rotate ci
  sluice token revoke ci`,
	}
	command.AddCommand(newCreate(), newList(), newRotate(), newRevoke())
	return command
}

func newCreate() *cobra.Command {
	var n api.NewToken
	var expires time.Duration
	command := remote.Command(&cobra.Command{
		Use:   "create NAME",
		Short: "Create a token, and print its secret",
		Long: `Create a token, and print its secret, which nobody can read later: the server keeps a hash
of it. A limit is a name, or a prefix with * at its end; without one there is no limit.`,
		Example: `  sluice token create ci --role submitter --tenant acme --expires 720h
  sluice token create mailer --role worker --type email --type sms > mailer.token
  sluice token create orders --role producer,consumer --topic 'orders.*' --group 'billing-*' --json`,
		Args: cobra.ExactArgs(1),
	}, func(ctx context.Context, c *remote.Client, args []string) error {
		n.Name = args[0]
		if expires != 0 {
			end := time.Now().Add(expires).UTC().Truncate(time.Second)
			n.Expires = &end
		}
		return printSecret(ctx, c, "/v1/tokens", n)
	})
	flags := command.Flags()
	flags.StringSliceVar(&n.Roles, "role", nil, "`ROLE` of the token, one or more")
	flags.StringSliceVar(&n.Tenants, "tenant", nil, "`TENANT` that a submitter is limited to")
	flags.StringSliceVar(&n.Types, "type", nil, "job `TYPE` that a worker is limited to")
	flags.StringSliceVar(&n.Rooms, "room", nil, "`ROOM` that a shop is limited to")
	flags.StringSliceVar(&n.Topics, "topic", nil, "`TOPIC` that a producer or a consumer is limited to")
	flags.StringSliceVar(&n.Groups, "group", nil, "`GROUP` that a consumer is limited to")
	flags.DurationVar(&expires, "expires", 0, "how long the token is valid, such as 720h (default: until it is revoked)")
	_ = command.MarkFlagRequired("role") // there is this flag
	return command
}

// printSecret makes a request whose answer has a secret.
func printSecret(ctx context.Context, c *remote.Client, path string, body any) error {
	var made api.NewSecret
	if err := c.Do(ctx, http.MethodPost, path, body, &made); err != nil {
		return err
	}
	if c.JSON {
		return c.WriteJSON(made)
	}
	c.Say("the secret of %s, which is shown once:", made.Name)
	fmt.Fprintln(c.Out, made.Secret)
	return nil
}

func newList() *cobra.Command {
	return remote.Command(&cobra.Command{
		Use: "list", Short: "List all tokens, without their secrets", Args: cobra.NoArgs,
		Example: `  sluice token list
  sluice token list --json | jq -r '.tokens[] | select(.expires != null) | .name'`,
	}, func(ctx context.Context, c *remote.Client, _ []string) error {
		var all api.Tokens
		if err := c.Do(ctx, http.MethodGet, "/v1/tokens", nil, &all); err != nil {
			return err
		}
		if c.JSON {
			return c.WriteJSON(all)
		}
		type column = term.Column[api.Token]
		term.TableOf(all.Tokens,
			column{Header: "name", Words: true, Cell: func(t *api.Token) string { return t.Name }},
			column{Header: "roles", Words: true, Cell: func(t *api.Token) string { return strings.Join(t.Roles, ", ") }},
			column{Header: "limits", Words: true, Cell: limits},
			column{Header: "created", Words: true, Cell: func(t *api.Token) string { return t.Created.Local().Format(time.DateTime) }},
			column{Header: "expires", Words: true, Cell: func(t *api.Token) string {
				if t.Expires == nil {
					return "never"
				}
				return t.Expires.Local().Format(time.DateTime)
			}},
		).Write(c.Out, c.Out.Columns())
		return nil
	})
}

// limits describes what a token is limited to.
func limits(t *api.Token) string {
	return term.Printable(strings.Join(slices.Concat(t.Tenants, t.Types, t.Rooms, t.Topics, t.Groups), ", "))
}

func newRotate() *cobra.Command {
	return remote.Command(&cobra.Command{
		Use: "rotate NAME", Short: "Give a token a new secret, and print it", Args: cobra.ExactArgs(1),
		Long: `Give a token a new secret, and print it. The one before ends at once. To change programs
one by one, create a second token, and revoke the first when nothing uses it.`,
		Example: `  sluice token rotate mailer > mailer.token`,
	}, func(ctx context.Context, c *remote.Client, args []string) error {
		return printSecret(ctx, c, "/v1/tokens/"+url.PathEscape(args[0])+"/rotate", nil)
	})
}

func newRevoke() *cobra.Command {
	return remote.Command(&cobra.Command{
		Use: "revoke NAME", Short: "Revoke a token: whoever has it is not known any more", Args: cobra.ExactArgs(1),
		Long:    `Revoke a token. Open connections end within 5 seconds, at all servers that share the tokens.`,
		Example: `  sluice token revoke mailer`,
	}, func(ctx context.Context, c *remote.Client, args []string) error {
		if err := c.Do(ctx, http.MethodDelete, "/v1/tokens/"+url.PathEscape(args[0]), nil, nil); err != nil {
			return err
		}
		return c.Tell(map[string]string{"revoked": args[0]}, "%s is revoked", args[0])
	})
}
