package main

import (
	"context"
	"encoding/csv"
	"fmt"
	"strconv"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
)

// failuresPage is how many failed jobs are asked for at one time.
const failuresPage = 1000

func newFailuresCommand(connect connector) *cobra.Command {
	var f remoteFlags
	var limit int
	var asCSV bool
	command := &cobra.Command{
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
		RunE: f.with(connect, func(ctx context.Context, r *remote, args []string) error {
			switch {
			case limit < 0:
				return wrongUsage("--limit: %d: want how many jobs to list, or 0 for all", limit)
			case asCSV && r.json:
				return wrongUsage("give either --csv or --json, not both")
			case asCSV:
				return r.failuresCSV(ctx, args[0])
			case r.json:
				return r.eachFailure(ctx, args[0], 0, func(job *wire.DeadLetter) error { return r.writeJSON(job) })
			}
			return r.failuresTable(ctx, args[0], limit)
		}),
	}
	f.add(command)
	command.Flags().BoolVar(&asCSV, "csv", false, "write all of them as CSV")
	command.Flags().IntVar(&limit, "limit", 50, "list at most so many in the table (0: all)")
	return command
}

// eachFailure calls see with the failed jobs, at most limit of them (0: all).
func (r *remote) eachFailure(ctx context.Context, id string, limit int, see func(*wire.DeadLetter) error) error {
	from, seen := int64(0), 0
	for {
		want := failuresPage
		if limit > 0 {
			want = min(want, limit-seen)
		}
		page, err := r.server.Failures(ctx, id, from, want)
		if err != nil {
			return err
		}
		for i := range page.Failures {
			if err := see(&page.Failures[i]); err != nil {
				return err
			}
		}
		seen += len(page.Failures)
		if page.Next == nil || seen == limit {
			return nil
		}
		from = *page.Next
	}
}

func (r *remote) failuresCSV(ctx context.Context, id string) error {
	w := csv.NewWriter(r.out)
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

func (r *remote) failuresTable(ctx context.Context, id string, limit int) error {
	g := grid{Header: []string{"index", "attempts", "error", "payload"}, Left: map[int]bool{2: true, 3: true}}
	err := r.eachFailure(ctx, id, limit, func(job *wire.DeadLetter) error {
		g.Rows = append(g.Rows, []string{
			humanize.Comma(job.Index), strconv.Itoa(job.Attempts),
			clip(printable(job.Error), 200), payloadText(job.Payload),
		})
		return nil
	})
	if err != nil {
		return err
	}
	if len(g.Rows) == 0 {
		r.say("no failed jobs")
		return nil
	}
	g.Write(r.out, r.out.Columns())
	if len(g.Rows) == limit {
		fmt.Fprintf(r.err, "the first %d; --limit 0 lists all, --csv writes them as CSV\n", limit)
	}
	return nil
}
