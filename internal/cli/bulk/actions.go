package bulk

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/internal/cli/bulk/report"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// listPage is how many actions one request asks for.
const listPage = 500

func newListCommand(connect connector) *cobra.Command {
	return listCommand(connect, server.Actions, &cobra.Command{
		Use:   "list",
		Short: "List the actions of a server, in the order of their creation",
		Example: `  sluice bulk list
  sluice bulk list --tenant acme --status RUNNING
  sluice bulk list --limit 0 --json`,
	})
}

func newStreamsCommand(connect connector) *cobra.Command {
	return listCommand(connect, server.Streams, &cobra.Command{
		Use:   "streams",
		Short: "List the streams of a server, of jobs that were enqueued one at a time",
		Example: `  sluice bulk streams
  sluice bulk streams --tenant acme --status RUNNING`,
	})
}

// listCommand gives a command the flags of a list of actions.
func listCommand(connect connector, ask func(server, context.Context, client.ActionFilter) (wire.Actions, error), command *cobra.Command) *cobra.Command {
	var filter client.ActionFilter
	var limit int
	command.Args = cobra.NoArgs
	command = onServer(connect, command, func(ctx context.Context, r *session, _ []string) error {
		if limit < 0 {
			return exit.Usage("--limit: %d: want how many actions to list, or 0 for all", limit)
		}
		filter.Status = strings.ToUpper(filter.Status)
		return r.list(limit, func(after string, want int) ([]wire.Action, *string, error) {
			filter.After, filter.Limit = after, want
			page, err := ask(r.server, ctx, filter)
			return page.Actions, page.Next, err
		})
	})
	command.Flags().StringVar(&filter.Tenant, "tenant", "", "only the actions of this `tenant`")
	command.Flags().StringVar(&filter.Status, "status", "", "only those in this `status`: CREATED, DISPATCHED, RUNNING,\nAGGREGATING, COMPLETED, FAILED or CANCELED")
	command.Flags().IntVar(&limit, "limit", 100, "list at most so many (0: all)")
	return command
}

// list writes actions as a table; with --json it writes each on a line, as they arrive.
func (r *session) list(limit int, ask func(after string, want int) ([]wire.Action, *string, error)) error {
	now := time.Now()
	type column = term.Column[wire.Action]
	return listOf(r, limit, listPage, "no actions", ask,
		column{Header: "id", Words: true, Cell: func(a *wire.Action) string { return term.Printable(a.ID) }},
		column{Header: "tenant", Words: true, Cell: func(a *wire.Action) string { return term.Name(a.Tenant) }},
		column{Header: "status", Words: true, Cell: statusOf},
		column{Header: "jobs", Cell: func(a *wire.Action) string { return humanize.Comma(standingOf(a).Total) }},
		column{Header: "done", Cell: func(a *wire.Action) string { return standingOf(a).Percent() }},
		column{Header: "failed", Cell: func(a *wire.Action) string { return humanize.Comma(a.Failed) }},
		column{Header: "created", Cell: func(a *wire.Action) string { return term.Ago(now, a.CreatedAt) }})
}

// eachOf calls see with the items of a paged list, at most limit of them (0: all), and reports
// whether there are more.
func eachOf[T, P any](limit, page int, ask func(from P, want int) ([]T, *P, error), see func(*T) error) (more bool, err error) {
	var from P
	for seen := 0; ; {
		want := page
		if limit > 0 {
			want = min(want, limit-seen)
		}
		items, next, err := ask(from, want)
		if err != nil {
			return false, err
		}
		for i := range items {
			if err := see(&items[i]); err != nil {
				return false, err
			}
		}
		if seen += len(items); next == nil || limit > 0 && seen == limit {
			return next != nil, nil
		}
		from = *next
	}
}

// standingOf returns the counts of an action.
func standingOf(a *wire.Action) *term.Standing {
	local := client.LocalAction(a)
	s := report.StandingOf(a.Tenant, &local)
	return &s
}

func statusOf(a *wire.Action) string {
	if a.Paused && !a.Final() {
		return a.Status + " (paused)"
	}
	return a.Status
}

func newStatusCommand(connect connector) *cobra.Command {
	return onServer(connect, &cobra.Command{
		Use:     "status ID",
		Short:   "Show one action of a server, and where its jobs are",
		Example: `  sluice bulk status zips`,
		Args:    oneID,
	}, func(ctx context.Context, r *session, args []string) error {
		action, err := r.server.Action(ctx, args[0])
		if err != nil {
			return err
		}
		return r.show(&action)
	})
}

// show writes one action.
func (r *session) show(a *wire.Action) error {
	if r.JSON {
		return r.WriteJSON(a)
	}
	r.Facts(statusFacts(a, time.Now()), true)
	return nil
}

// statusFacts are the lines of "status".
func statusFacts(a *wire.Action, now time.Time) []term.Fact {
	s := standingOf(a)
	at := func(t time.Time) string { return term.When(t, now) }
	ends := ""
	if a.FinishedAt == nil {
		ends = term.Or(a.EstimatedFinishAt, "", func(t time.Time) string { return "about " + term.Spell(t.Sub(now)) })
	}
	facts := []term.Fact{
		{"action", term.Printable(a.ID)},
		{"tenant", term.Printable(a.Tenant)},
		{"key", term.Printable(a.Key)},
		{"runs", runsText(a.Type, a.Target) + ", class " + a.Class},
		{"status", statusOf(a)},
		{"jobs", fmt.Sprintf("%s of %s finished (%s)", humanize.Comma(s.Done()), humanize.Comma(s.Total), s.Percent())},
		{"", jobCounts(a)},
		{"created", at(a.CreatedAt)},
		{"error", term.Printable(a.Error)},
		{"run at", term.Or(a.RunAt, "", func(t time.Time) string { return t.Format(time.RFC3339) })},
		{"finished", term.Or(a.FinishedAt, "", at)},
		{"ends in", ends},
	}
	for _, name := range slices.Sorted(maps.Keys(a.Result)) {
		facts = append(facts, term.Fact{term.Printable(name), report.PlainJSON(a.Result[name])})
	}
	return facts
}

// runsText describes what runs the jobs of an action.
func runsText(jobType string, target *wire.Target) string {
	return term.Or(target, "type "+term.Printable(jobType), func(to wire.Target) string { return "webhook to " + term.Printable(to.URL) })
}

// jobCounts returns the counts of jobs by state, without the counts that are zero.
func jobCounts(a *wire.Action) string {
	var parts []string
	for _, part := range []struct {
		name  string
		count int64
	}{
		{"succeeded", a.Succeeded}, {"failed", a.Failed}, {"canceled", a.Canceled}, {"in flight", a.InFlight},
		{"ready", a.Ready}, {"waiting in line", a.Pending}, {"rate limited", a.NonReadyReasons.RateLimited},
		{"waiting after a throttle", a.NonReadyReasons.APIThrottled}, {"waiting to retry", a.NonReadyReasons.TransientError},
		{"waiting for their key", a.NonReadyReasons.KeyLimited},
		{"waiting for a target that is down", a.NonReadyReasons.TargetDown},
		{"throttled attempts", a.Throttled}, {"retried attempts", a.Retried},
	} {
		if part.count > 0 {
			parts = append(parts, humanize.Comma(part.count)+" "+part.name)
		}
	}
	if len(parts) == 0 {
		return "none yet"
	}
	return strings.Join(parts, ", ")
}

// newTransitionCommand returns pause, resume or cancel.
func newTransitionCommand(connect connector, name, short string, move func(server, context.Context, string) (wire.Action, error)) *cobra.Command {
	return orMany(connect, &cobra.Command{
		Short:   short,
		Long:    short + "." + selectHelp,
		Example: fmt.Sprintf("  sluice bulk %[1]s zips\n  sluice bulk %[1]s --tenant acme --dry-run\n  sluice bulk %[1]s --target api.example.com:443", name),
	}, name, func(ctx context.Context, r *session, change *wire.Change) error {
		action, err := move(r.server, ctx, change.Action)
		if err != nil {
			return err
		}
		return r.transitioned(&action)
	})
}

func (r *session) transitioned(a *wire.Action) error {
	return r.Tell(a, "%s is %s: %s", term.Printable(a.ID), statusOf(a), jobCounts(a))
}

func newReplayCommand(connect connector) *cobra.Command {
	const short = "Run the failed jobs of a finished action, or of a stream, again, in a new action"
	return orMany(connect, &cobra.Command{
		Short: short,
		Long:  short + "." + selectHelp + failureHelp,
		Example: `  sluice bulk replay zips
  sluice bulk replay zips --json | jq -r .id
  sluice bulk replay --target api.example.com:443 --dry-run
  sluice bulk replay --cause 5xx --since yesterday --until today`,
	}, "replay", func(ctx context.Context, r *session, change *wire.Change) error {
		id := change.Action
		action, err := r.server.Replay(ctx, wire.Replay{Action: id, FailureFilter: change.FailureFilter})
		if err != nil {
			return byFlags(err)
		}
		return r.Tell(&action, "%s runs %s of %s again: sluice bulk watch %s", term.Printable(action.ID),
			term.Counted(action.Received, "failed job"), id, term.Printable(action.ID))
	})
}
