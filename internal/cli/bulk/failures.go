package bulk

import (
	"context"
	"encoding/csv"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// failuresPage is how many failed jobs one request asks for.
const failuresPage = 1000

func newFailuresCommand(connect connector) *cobra.Command {
	var limit int
	var asCSV bool
	command := onServer(connect, &cobra.Command{
		Use:   "failures ID",
		Short: "List the failed jobs of an action, with their errors and payloads",
		Long: `List the jobs of an action that failed for good, in the order of the upload.

With --csv or --json all of them are written as they come, whatever their number:
CSV with the columns index, id, error, attempts, failed_at, payload, as the API
has them; or a JSON object per line.`,
		Example: `  sluice bulk failures zips
  sluice bulk failures zips --csv > failed.csv
  sluice bulk failures zips --json | jq -c .payload > again.ndjson`,
		Args: oneID,
	}, func(ctx context.Context, r *session, args []string) error {
		switch {
		case limit < 0:
			return exit.Usage("--limit: %d: want how many jobs to list, or 0 for all", limit)
		case asCSV && r.JSON:
			return exit.Usage("give either --csv or --json, not both")
		case asCSV:
			return r.failuresCSV(ctx, args[0])
		case r.JSON:
			return r.eachFailure(ctx, args[0], 0, func(job *wire.DeadLetter) error { return r.WriteJSON(job) })
		}
		return r.failuresTable(ctx, args[0], limit)
	})
	command.Flags().BoolVar(&asCSV, "csv", false, "write all of them as CSV")
	command.Flags().IntVar(&limit, "limit", 50, "list at most so many in the table (0: all)")
	return command
}

// eachFailure calls see with the failed jobs, at most limit of them (0: all).
func (r *session) eachFailure(ctx context.Context, id string, limit int, see func(*wire.DeadLetter) error) error {
	_, err := eachOf(limit, failuresPage, func(from int64, want int) ([]wire.DeadLetter, *int64, error) {
		page, err := r.server.Failures(ctx, id, from, want)
		return page.Failures, page.Next, err
	}, see)
	return err
}

func (r *session) failuresCSV(ctx context.Context, id string) error {
	w := csv.NewWriter(r.Out)
	err := w.Write([]string{"index", "id", "error", "attempts", "failed_at", "payload"})
	if err != nil {
		return err
	}
	err = r.eachFailure(ctx, id, 0, func(job *wire.DeadLetter) error {
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

func (r *session) failuresTable(ctx context.Context, id string, limit int) error {
	var jobs []wire.DeadLetter
	err := r.eachFailure(ctx, id, limit, func(job *wire.DeadLetter) error { jobs = append(jobs, *job); return nil })
	if err != nil {
		return err
	}
	type column = term.Column[wire.DeadLetter]
	err = term.List(&r.Output, jobs, "no failed jobs",
		column{Header: "index", Cell: func(job *wire.DeadLetter) string { return humanize.Comma(job.Index) }},
		column{Header: "attempts", Cell: func(job *wire.DeadLetter) string { return strconv.Itoa(job.Attempts) }},
		column{Header: "error", Words: true, Cell: func(job *wire.DeadLetter) string { return term.Clip(term.Printable(job.Error), 200) }},
		column{Header: "payload", Words: true, Cell: func(job *wire.DeadLetter) string { return term.Clip(term.Printable(string(job.Payload)), 200) }})
	if limit > 0 && len(jobs) == limit {
		r.Say("the first %d; --limit 0 lists all, --csv writes them as CSV", limit)
	}
	return err
}
