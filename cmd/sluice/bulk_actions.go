package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/jedib0t/go-pretty/v6/text"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
)

// listPage is how many actions are asked for at one time.
const listPage = 500

func newListCommand(connect connector) *cobra.Command {
	var f remoteFlags
	var tenant, status string
	var limit int
	command := &cobra.Command{
		Use:   "list",
		Short: "List the actions of a server, in the order of their creation",
		Example: `  sluice bulk list
  sluice bulk list --tenant acme --status RUNNING
  sluice bulk list --limit 0 --json`,
		Args: cobra.NoArgs,
		RunE: f.with(connect, func(ctx context.Context, r *remote, _ []string) error {
			if limit < 0 {
				return wrongUsage("--limit: %d: want how many actions to list, or 0 for all", limit)
			}
			return r.list(ctx, tenant, strings.ToUpper(status), limit)
		}),
	}
	f.add(command)
	command.Flags().StringVar(&tenant, "tenant", "", "only the actions of this `tenant`")
	command.Flags().StringVar(&status, "status", "", "only those in this `status`: CREATED, DISPATCHED, RUNNING,\nAGGREGATING, COMPLETED, FAILED or CANCELED")
	command.Flags().IntVar(&limit, "limit", 100, "list at most so many (0: all)")
	return command
}

// list writes actions as a table; with --json each on a line, as they come.
func (r *remote) list(ctx context.Context, tenant, status string, limit int) error {
	g := grid{
		Header: []string{"id", "tenant", "status", "jobs", "done", "failed", "created"},
		Left:   map[int]bool{0: true, 1: true, 2: true},
	}
	now, after, listed := time.Now(), "", 0
	for {
		want := listPage
		if limit > 0 {
			want = min(want, limit-listed)
		}
		page, err := r.server.Actions(ctx, tenant, status, after, want)
		if err != nil {
			return err
		}
		for i := range page.Actions {
			if r.json {
				if err := r.writeJSON(&page.Actions[i]); err != nil {
					return err
				}
				continue
			}
			g.Rows = append(g.Rows, listRow(&page.Actions[i], now))
		}
		listed += len(page.Actions)
		if page.Next == nil || listed == limit {
			return r.listed(&g, listed, page.Next != nil)
		}
		after = *page.Next
	}
}

func (r *remote) listed(g *grid, count int, more bool) error {
	switch {
	case r.json:
	case count == 0:
		r.say("no actions")
	default:
		g.Write(r.out, r.out.Columns())
		if more {
			r.say("there are more: --limit 0 lists all")
		}
	}
	return nil
}

func listRow(a *wire.Action, now time.Time) []string {
	local := client.LocalAction(a)
	s := standingOf(a.Tenant, &local)
	return []string{
		printable(a.ID), clip(printable(a.Tenant), longestName), statusOf(a), humanize.Comma(s.Total),
		percent(s.Done(), s.Total), humanize.Comma(s.Failed), ago(now, a.CreatedAt),
	}
}

func statusOf(a *wire.Action) string {
	if a.Paused && !a.Final() {
		return a.Status + " (paused)"
	}
	return a.Status
}

func newStatusCommand(connect connector) *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:     "status ID",
		Short:   "Show one action of a server, and where its jobs are",
		Example: `  sluice bulk status zips`,
		Args:    oneID,
		RunE: f.with(connect, func(ctx context.Context, r *remote, args []string) error {
			action, err := r.server.Action(ctx, args[0])
			if err != nil {
				return err
			}
			return r.show(&action)
		}),
	}
	f.add(command)
	return command
}

// show writes one action.
func (r *remote) show(a *wire.Action) error {
	if r.json {
		return r.writeJSON(a)
	}
	r.writeFacts(statusFacts(a, time.Now()))
	return nil
}

// writeFacts writes names and what is to be said of each, wrapped beside the name.
func (r *remote) writeFacts(facts [][2]string) {
	width := 0
	for _, fact := range facts {
		width = max(width, len(fact[0]))
	}
	for _, fact := range facts {
		value := text.WrapSoft(fact[1], max(r.out.Columns()-width-2, narrowestView/2))
		value = strings.ReplaceAll(value, "\n", "\n"+strings.Repeat(" ", width+2))
		fmt.Fprintf(r.out, "%s  %s\n", left(fact[0], width), value)
	}
}

// statusFacts are the lines of "status".
func statusFacts(a *wire.Action, now time.Time) [][2]string {
	local := client.LocalAction(a)
	s := standingOf(a.Tenant, &local)
	runs := "type " + printable(a.Type)
	if a.Target != nil {
		runs = "webhook to " + printable(a.Target.URL)
	}
	facts := [][2]string{
		{"action", printable(a.ID)},
		{"tenant", printable(a.Tenant)},
		{"runs", runs + ", class " + a.Class},
		{"status", statusOf(a)},
		{"jobs", fmt.Sprintf("%s of %s finished (%s)", humanize.Comma(s.Done()), humanize.Comma(s.Total), percent(s.Done(), s.Total))},
		{"", whereabouts(a)},
		{"created", when(a.CreatedAt, now)},
	}
	if a.Error != "" {
		facts = append(facts, [2]string{"error", printable(a.Error)})
	}
	if a.RunAt != nil {
		facts = append(facts, [2]string{"run at", a.RunAt.Format(time.RFC3339)})
	}
	if a.FinishedAt != nil {
		facts = append(facts, [2]string{"finished", when(*a.FinishedAt, now)})
	} else if a.EstimatedFinishAt != nil {
		facts = append(facts, [2]string{"ends in", "about " + spell(a.EstimatedFinishAt.Sub(now))})
	}
	for _, name := range slices.Sorted(maps.Keys(a.Result)) {
		facts = append(facts, [2]string{printable(name), plainJSON(a.Result[name])})
	}
	return facts
}

func when(t, now time.Time) string { return t.UTC().Format(time.RFC3339) + ", " + ago(now, t) }

// whereabouts says where the jobs are, leaving out where none is.
func whereabouts(a *wire.Action) string {
	var parts []string
	for _, part := range []struct {
		name  string
		count int64
	}{
		{"succeeded", a.Succeeded}, {"failed", a.Failed}, {"canceled", a.Canceled}, {"in flight", a.InFlight},
		{"ready", a.Ready}, {"waiting in line", a.Pending}, {"rate limited", a.NonReadyReasons.RateLimited},
		{"waiting after a throttle", a.NonReadyReasons.APIThrottled}, {"waiting to retry", a.NonReadyReasons.TransientError},
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

// newMoveCommand returns pause, resume or cancel.
func newMoveCommand(connect connector, name, short string, move func(server, context.Context, string) (wire.Action, error)) *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:     name + " ID",
		Short:   short,
		Example: fmt.Sprintf("  sluice bulk %s zips", name),
		Args:    oneID,
		RunE: f.with(connect, func(ctx context.Context, r *remote, args []string) error {
			action, err := move(r.server, ctx, args[0])
			if err != nil {
				return err
			}
			return r.moved(&action)
		}),
	}
	f.add(command)
	return command
}

func (r *remote) moved(a *wire.Action) error {
	if r.json {
		return r.writeJSON(a)
	}
	fmt.Fprintf(r.out, "%s is %s: %s\n", printable(a.ID), statusOf(a), whereabouts(a))
	return nil
}

func newReplayCommand(connect connector) *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:   "replay ID",
		Short: "Run the failed jobs of a finished action again, in a new action",
		Example: `  sluice bulk replay zips
  sluice bulk replay zips --json | jq -r .id`,
		Args: oneID,
		RunE: f.with(connect, func(ctx context.Context, r *remote, args []string) error {
			action, err := r.server.Replay(ctx, args[0])
			if err != nil {
				return err
			}
			if r.json {
				return r.writeJSON(&action)
			}
			fmt.Fprintf(r.out, "%s runs %s of %s again: sluice bulk watch %s\n", printable(action.ID),
				counted(action.Received, "failed job"), args[0], printable(action.ID))
			return nil
		}),
	}
	f.add(command)
	return command
}

// payloadText is a payload for a cell of a table.
func payloadText(raw json.RawMessage) string { return clip(printable(string(raw)), 200) }
