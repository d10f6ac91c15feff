package bulk

import (
	"context"
	"encoding/csv"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// failuresPage is how many failed jobs one request asks for.
const failuresPage = 1000

func newFailuresCommand(connect connector) *cobra.Command {
	var filter client.DeadLetterFilter
	var failures failureFlags
	var limit int
	var asCSV bool
	command := onServer(connect, &cobra.Command{
		Use:   "failures [ID]",
		Short: "List failed jobs, with their errors and payloads",
		Long: `List jobs that failed for good: of an action, in the order of the upload, or of all
actions that the flags select.

With --csv or --json all of them are written as they come, whatever their number:
CSV with the columns index, id, error, attempts, failed_at, payload, as the API
has them; or a JSON object per line.` + failureHelp,
		Example: `  sluice bulk failures zips
  sluice bulk failures zips --csv > failed.csv
  sluice bulk failures zips --json | jq -c .payload > again.ndjson
  sluice bulk failures --tenant acme --cause 5xx --since yesterday --until today`,
		Args: cobra.MaximumNArgs(1),
	}, func(ctx context.Context, r *session, args []string) (err error) {
		switch {
		case limit < 0:
			return exit.Usage("--limit: %d: want how many jobs to list, or 0 for all", limit)
		case asCSV && r.JSON:
			return exit.Usage("give either --csv or --json, not both")
		case len(args) == 1:
			filter.Action = args[0]
		}
		if filter.FailureFilter, err = failures.read(time.Now()); err != nil {
			return err
		}
		switch {
		case asCSV:
			err = r.failuresCSV(ctx, filter)
		case r.JSON:
			_, err = r.eachFailure(ctx, filter, 0, func(job *wire.DeadLetter) error { return r.WriteJSON(job) })
		default:
			err = r.failuresTable(ctx, filter, limit)
		}
		return byFlags(err)
	})
	failures.add(command.Flags())
	command.Flags().StringVar(&filter.Tenant, "tenant", "", "those of this `tenant`")
	command.Flags().StringVar(&filter.Type, "type", "", "those of jobs of this `type`")
	command.Flags().StringVar(&filter.Target, "target", "", "those of jobs with the target of this `name`")
	command.Flags().BoolVar(&asCSV, "csv", false, "write all of them as CSV")
	command.Flags().IntVar(&limit, "limit", 50, "list at most so many in the table (0: all)")
	return command
}

// eachFailure calls see with the failed jobs, at most limit of them (0: all), and reports whether there may be more.
func (r *session) eachFailure(ctx context.Context, filter client.DeadLetterFilter, limit int, see func(*wire.DeadLetter) error) (more bool, err error) {
	return eachOf(limit, failuresPage, func(after string, want int) ([]wire.DeadLetter, *string, error) {
		filter.After, filter.Limit = after, want
		page, err := r.server.DeadLetters(ctx, filter)
		return page.DeadLetters, page.Next, err
	}, see)
}

func (r *session) failuresCSV(ctx context.Context, filter client.DeadLetterFilter) error {
	w := csv.NewWriter(r.Out)
	err := w.Write([]string{"index", "id", "error", "attempts", "failed_at", "payload"})
	if err != nil {
		return err
	}
	_, err = r.eachFailure(ctx, filter, 0, func(job *wire.DeadLetter) error {
		return w.Write([]string{
			strconv.FormatInt(job.Index, 10), job.ID, job.Error, strconv.Itoa(job.Attempts),
			job.FailedAt.UTC().Format(time.RFC3339Nano), string(job.Payload),
		})
	})
	w.Flush()
	if err != nil {
		return err
	}
	return w.Error()
}

func (r *session) failuresTable(ctx context.Context, filter client.DeadLetterFilter, limit int) error {
	var jobs []wire.DeadLetter
	more, err := r.eachFailure(ctx, filter, limit, func(job *wire.DeadLetter) error { jobs = append(jobs, *job); return nil })
	if err != nil {
		return err
	}
	now := time.Now()
	type column = term.Column[wire.DeadLetter]
	columns := []column{{Header: "index", Cell: func(job *wire.DeadLetter) string { return humanize.Comma(job.Index) }}}
	if filter.Action == "" {
		columns = []column{
			{Header: "job", Words: true, Cell: func(job *wire.DeadLetter) string {
				return term.Printable(job.Action) + "/" + strconv.FormatInt(job.Index, 10)
			}},
			{Header: "failed", Cell: func(job *wire.DeadLetter) string { return term.Ago(now, job.FailedAt) }},
		}
	}
	err = term.List(&r.Output, jobs, "no failed jobs", append(columns,
		column{Header: "attempts", Cell: func(job *wire.DeadLetter) string { return strconv.Itoa(job.Attempts) }},
		column{Header: "error", Words: true, Cell: func(job *wire.DeadLetter) string { return term.Clip(term.Printable(job.Error), 200) }},
		column{Header: "payload", Words: true, Cell: func(job *wire.DeadLetter) string { return term.Clip(term.Printable(string(job.Payload)), 200) }})...)
	if more {
		r.Say("the first %d; --limit 0 lists all, --csv writes them as CSV", limit)
	}
	return err
}
