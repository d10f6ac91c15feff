package bulk

import (
	"context"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// selectHelp ends the help of commands that take an id or flags that select.
const selectHelp = `

Without an id, the flags select the actions that match all that are given. --dry-run counts
what would be changed, and changes nothing. Actions whose status does not allow it are left as
they are. The command may be repeated.`

// done is how the outcome of each verb reads.
var done = map[string]string{"pause": "paused", "resume": "resumed", "cancel": "canceled", "replay": "replayed"}

// orMany gives a command on one action flags that select many, and runs one where an id is given, which is
// then the Action of the change.
func orMany(connect connector, command *cobra.Command, verb string, one func(ctx context.Context, r *session, change *wire.Change) error) *cobra.Command {
	change := wire.Change{Do: verb}
	var failures failureFlags
	flags := command.Flags()
	if verb == "replay" {
		failures.add(flags)
	}
	flags.StringVar(&change.Tenant, "tenant", "", "the actions of this `tenant`")
	flags.StringVar(&change.Type, "type", "", "those whose jobs have this `type`")
	flags.StringVar(&change.Target, "target", "", "those with the target of this `name`")
	flags.StringVar(&change.Status, "status", "", "those in this `status`, such as RUNNING")
	flags.BoolVar(&change.All, "all", false, "every action")
	flags.BoolVar(&change.DryRun, "dry-run", false, "count what would be changed, and change nothing")
	command.Use = verb + " [ID]"
	command.Args = func(_ *cobra.Command, args []string) error {
		selects := change.Tenant+change.Type+change.Target+change.Status != ""
		switch {
		case (selects || failures.given()) && change.All:
			return exit.Usage("--all selects every action: leave it out, or the flags that select some")
		case len(args) == 1 && !selects && !change.All, len(args) == 0 && (selects || failures.given() || change.All):
			return nil
		}
		return exit.Usage(`give either the id of one action, which "sluice bulk list" shows, or flags that select several, such as --tenant`)
	}
	return onServer(connect, command, func(ctx context.Context, r *session, args []string) error {
		var err error
		if change.FailureFilter, err = failures.read(time.Now()); err != nil {
			return err
		}
		if len(args) == 1 {
			change.Action = args[0]
		}
		if len(args) == 1 && !change.DryRun {
			return one(ctx, r, &change)
		}
		return r.change(ctx, change)
	})
}

// change changes all actions that match, page by page.
func (r *session) change(ctx context.Context, change wire.Change) error {
	var sum wire.Changed
	change.Status = strings.ToUpper(change.Status)
	for {
		page, err := r.server.Change(ctx, change)
		if err != nil {
			return byFlags(err)
		}
		sum.Matched, sum.Changed, sum.Jobs = sum.Matched+page.Matched, sum.Changed+page.Changed, sum.Jobs+page.Jobs
		if page.Next == nil {
			break
		}
		change.After = *page.Next
		r.Say("%s of %s so far", humanize.Comma(int64(sum.Changed)), term.Counted(int64(sum.Matched), "action"))
	}
	verb := done[change.Do]
	if change.DryRun {
		verb = "would be " + verb
	}
	return r.Tell(&sum, "%s of %s %s, with %s", humanize.Comma(int64(sum.Changed)),
		term.Counted(int64(sum.Matched), "selected action"), verb, term.Counted(sum.Jobs, "job"))
}
