package bulk

import (
	"cmp"
	"context"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// waitsPage is how many unfinished actions one request looks at, and workersPage how many types one asks for.
const (
	waitsPage   = 100
	workersPage = 1000
)

func newWaitsCommand(connect connector) *cobra.Command {
	var tenant string
	var limit int
	command := onServer(connect, &cobra.Command{
		Use:   "waits",
		Short: "List the actions with jobs that wait, and why",
		Long: `List the unfinished actions of which jobs wait, in the order of their creation, and of each why its
first job that has not ended does not run. "sluice bulk why" tells more of one.`,
		Example: `  sluice bulk waits
  sluice bulk waits --tenant acme --json | jq -r .job.reason | sort | uniq -c`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, r *session, _ []string) error {
		if limit < 0 {
			return exit.Usage("--limit: %d: want how many actions to list, or 0 for all", limit)
		}
		type column = term.Column[wire.WaitingAction]
		return listOf(r, limit, waitsPage, "nothing waits", func(after string, want int) ([]wire.WaitingAction, *string, error) {
			page, err := r.server.Waits(ctx, tenant, after, want)
			return page.Waits, page.Next, err
		},
			column{Header: "action", Words: true, Cell: func(w *wire.WaitingAction) string { return term.Printable(w.Job.Action) }},
			column{Header: "tenant", Words: true, Cell: func(w *wire.WaitingAction) string { return term.Name(w.Tenant) }},
			column{Header: "runs", Words: true, Cell: func(w *wire.WaitingAction) string { return term.Printable(cmp.Or(w.Target, w.Type)) }},
			column{Header: "waiting", Cell: func(w *wire.WaitingAction) string { return humanize.Comma(w.Waiting) }},
			column{Header: "reason", Words: true, Cell: func(w *wire.WaitingAction) string { return term.Or(w.Job.Reason, "", term.Printable) }},
			column{Header: "why", Words: true, Cell: func(w *wire.WaitingAction) string { return term.Or(w.Job.Explanation, "", term.Printable) }})
	})
	command.Flags().StringVar(&tenant, "tenant", "", "only the actions of this `tenant`")
	command.Flags().IntVar(&limit, "limit", 100, "list at most so many (0: all)")
	return command
}

func newWorkersCommand(connect connector) *cobra.Command {
	return onServer(connect, &cobra.Command{
		Use:   "workers",
		Short: "List the job types, who runs their jobs, and how many wait",
		Long: `List the job types that have jobs or workers: how many workers are known, those of the server that
answers ("here") and remote ones, and how many jobs are in flight, ready and wait in line.`,
		Example: `  sluice bulk workers
  sluice bulk workers --json | jq -r 'select(.idle).type'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, r *session, _ []string) error {
		type column = term.Column[wire.Workforce]
		count := func(header string, of func(*wire.Workforce) int64) column {
			return column{Header: header, Cell: func(w *wire.Workforce) string { return humanize.Comma(of(w)) }}
		}
		return listOf(r, 0, workersPage, "no workers and no jobs", func(after string, want int) ([]wire.Workforce, *string, error) {
			page, err := r.server.Workers(ctx, after, want)
			return page.Workers, page.Next, err
		},
			column{Header: "type", Words: true, Cell: func(w *wire.Workforce) string { return term.Printable(w.Type) }},
			column{Header: "state", Words: true, Cell: workersState},
			count("workers", func(w *wire.Workforce) int64 { return w.Workers }), count("here", func(w *wire.Workforce) int64 { return w.Here }),
			count("in flight", func(w *wire.Workforce) int64 { return w.InFlight }), count("ready", func(w *wire.Workforce) int64 { return w.Ready }),
			count("waiting", func(w *wire.Workforce) int64 { return w.Waiting }))
	})
}

func workersState(w *wire.Workforce) string {
	switch {
	case w.Idle:
		return "nobody asks for its jobs"
	case w.Workers == 0:
		return "no worker"
	}
	return "at work"
}

// listOf lists all of a paged list, at most limit (0: all), as a table or, with --json, each on a line.
func listOf[T any](r *session, limit, page int, none string, ask func(after string, want int) ([]T, *string, error), columns ...term.Column[T]) error {
	var listed []T
	more, err := eachOf(limit, page, ask, func(item *T) error {
		if r.JSON {
			return r.WriteJSON(item)
		}
		listed = append(listed, *item)
		return nil
	})
	if err != nil || r.JSON {
		return err
	}
	err = term.List(&r.Output, listed, none, columns...)
	if more {
		r.Say("there are more: --limit 0 lists all")
	}
	return err
}
