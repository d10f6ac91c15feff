package bulk

import (
	"context"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

func newWhyCommand(connect connector) *cobra.Command {
	return onServer(connect, &cobra.Command{
		Use:   "why ID[/INDEX]",
		Short: "Show where one job is, and why it does not run",
		Long: `Show where one job of an action is and, if it has not ended, what holds it back, who has
what it waits for, its place in its tenant's line, and the earliest time of its start.

Without an index, it is the first job that has not ended. The jobs of an action have the
indexes from 0, in the order of the upload.`,
		Example: `  sluice bulk why zips
  sluice bulk why zips/41
  sluice bulk why zips/41 --json | jq -r .reason`,
		Args: exit.One(`give the id of one action, and a slash and an index for one of its jobs; "sluice bulk list" shows the actions`),
	}, func(ctx context.Context, r *session, args []string) error {
		id, index, one := strings.Cut(args[0], "/")
		var job wire.JobState
		var err error
		if one {
			n, wrong := strconv.ParseInt(index, 10, 64)
			if wrong != nil || n < 0 {
				return exit.Usage("%q: want an index from 0 after the slash, such as %s/0", args[0], id)
			}
			job, err = r.server.Job(ctx, id, n)
		} else {
			job, err = r.server.FirstJob(ctx, id)
		}
		if err != nil {
			return err
		}
		return r.explain(&job)
	})
}

// explain writes where a job is, and why.
func (r *session) explain(job *wire.JobState) error {
	if r.JSON {
		return r.WriteJSON(job)
	}
	r.Facts(whyFacts(job, time.Now()), true)
	return nil
}

// whyFacts are the lines of "why".
func whyFacts(job *wire.JobState, now time.Time) []term.Fact {
	soon := func(t time.Time) string {
		return t.UTC().Format(time.RFC3339) + ", in " + term.Spell(max(0, t.Sub(now)))
	}
	var held []string
	for _, h := range job.HeldBy {
		held = append(held, fmt.Sprintf("%s (%s)", term.Name(h.Tenant), humanize.Comma(h.Jobs)))
	}
	return []term.Fact{
		{"job", term.Printable(job.Action) + "/" + strconv.FormatInt(job.Index, 10)},
		{"state", strings.ReplaceAll(job.State, "_", " ")},
		{"attempts", term.Or(job.Attempts, "", strconv.Itoa)},
		{"error", term.Printable(job.Error)},
		{"result", resultText(job)},
		{"failed", term.Or(job.FailedAt, "", func(t time.Time) string { return term.When(t, now) })},
		{"why", term.Or(job.Explanation, "", term.Printable) + term.Or(job.Reason, "", func(reason string) string { return " (" + term.Printable(reason) + ")" })},
		{"held by", strings.Join(held, ", ")},
		{"in line", term.Or(job.Place, "", placeText)},
		{"earliest", term.Or(job.EarliestStart, "", soon)},
		{"deadline", term.Or(job.Deadline, "", soon)},
	}
}

// resultText is what a job has returned, shortened to a line.
func resultText(job *wire.JobState) string {
	const most = 200
	switch text := string(job.Result); {
	case job.ResultTruncated:
		return "larger than 64 KiB, not kept"
	case text == "null":
		return ""
	case len(text) > most:
		return term.Printable(text[:most]) + "… (--json has all of it)"
	default:
		return term.Printable(text)
	}
}

func placeText(before int64) string {
	if before == 0 {
		return "the first of its tenant and type"
	}
	return term.Counted(before, "job") + " of its tenant and type before it"
}
