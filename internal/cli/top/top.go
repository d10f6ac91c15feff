package top

import (
	"context"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// options are the flags of the command.
type options struct {
	interval time.Duration
	once     bool
	sort     string
	rows     int
}

func Command() *cobra.Command {
	var o options
	command := remote.Command(&cobra.Command{
		Use:   "top",
		Short: "Show the rates and queues of a running server",
		Long: `Show what a running server does, and renew it at each interval until Ctrl-C: jobs by
tenant and type, visitors by room, records by topic, and the lag of consumer groups. Of a
cluster it is the node that --server names: the topics are those whose partitions it
leads.

The figures are those of /metrics; rates are averages over the interval. --sort orders
the rows of each table: rate, the busiest first; size, the longest queue or the most data
first; name.

With --json each interval is one object on a line. Without a terminal, and with --once,
each is printed below the one before.`,
		Example: `  sluice top
  sluice top --once
  sluice top --sort size --rows 5 --interval 10s
  sluice top --once --json | jq '.groups[] | select(.lag > 1000)'`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, c *remote.Client, _ []string) error {
		if err := o.check(); err != nil {
			return err
		}
		return o.watch(ctx, c)
	})
	command.Flags().DurationVar(&o.interval, "interval", 2*time.Second, "time between two samples, and over which rates are averages; from 100ms to 1h (`duration`)")
	command.Flags().BoolVar(&o.once, "once", false, "show one interval, and end")
	command.Flags().StringVar(&o.sort, "sort", byRate, "`order` of the rows: rate, size or name")
	command.Flags().IntVar(&o.rows, "rows", 10, "show at most this `number` of rows of each table (0: all); --json has all")
	return command
}

func (o *options) check() error {
	switch {
	case o.interval < 100*time.Millisecond || o.interval > time.Hour:
		return exit.Usage("--interval: %v: want from 100ms to 1h", o.interval)
	case !slices.Contains([]string{byRate, bySize, byName}, o.sort):
		return exit.Usage("--sort: %q: want rate, size or name", o.sort)
	case o.rows < 0:
		return exit.Usage("--rows: %d: want a number of rows, or 0 for all", o.rows)
	}
	return nil
}

// watch shows a report for each interval until ctx ends.
func (o *options) watch(ctx context.Context, c *remote.Client) error {
	area := term.Area{Screen: c.Out}
	before, err := take(ctx, c)
	if err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(o.interval):
		}
		now, err := take(ctx, c)
		switch {
		case exit.IsCanceled(err): // Watching ends with Ctrl-C.
			return nil
		case err != nil:
			return err
		}
		report := compare(&before, &now)
		report.arrange(o.sort)
		if err := o.show(c, &area, &report); err != nil || o.once {
			return err
		}
		before = now
	}
}

func take(ctx context.Context, c *remote.Client) (sample, error) {
	text, err := c.Fetch(ctx, http.MethodGet, "/metrics", nil)
	if err != nil {
		return sample{}, err
	}
	return parse(time.Now(), text)
}

// show writes a report: as JSON, in place of the one before, or below it.
func (o *options) show(c *remote.Client, area *term.Area, report *Report) error {
	switch {
	case c.JSON:
		return c.WriteJSON(report)
	case area.Size == nil || o.once:
		_, err := fmt.Fprintln(c.Out, strings.Join(report.lines(o.rows, c.Out.Columns()), "\n")+"\n")
		return err
	}
	area.Draw(report.fit(o.rows, area.Size))
	return nil
}

// fit returns the lines of a report with as many rows of each table as the screen has room for: lines
// below a screen cannot be drawn over.
func (r *Report) fit(most int, size func() (columns, rows int)) []string {
	columns, height := size()
	if most == 0 || most > height {
		most = height
	}
	lines := r.lines(most, columns-1)
	for ; most > 1 && len(lines) >= height; most-- {
		lines = r.lines(most-1, columns-1)
	}
	return lines[:min(len(lines), max(height-1, 1))]
}
