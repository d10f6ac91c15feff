package bulk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// scheduleServer is the part of a server that "bulk schedule" needs.
type scheduleServer interface {
	PutSchedule(ctx context.Context, name string, schedule wire.NewSchedule) (wire.Schedule, error)
	Schedule(ctx context.Context, name string) (wire.Schedule, error)
	Schedules(ctx context.Context) ([]wire.Schedule, error)
	RemoveSchedule(ctx context.Context, name string) error
	PauseSchedule(ctx context.Context, name string) (wire.Schedule, error)
	ResumeSchedule(ctx context.Context, name string) (wire.Schedule, error)
	// RunSchedule returns the action of the run.
	RunSchedule(ctx context.Context, name string) (wire.Created, error)
}

// newScheduleCommand returns "sluice bulk schedule" with its commands.
func newScheduleCommand(connect connector) *cobra.Command {
	command := &cobra.Command{
		Use:   "schedule",
		Short: "Create an action at the times of a cron expression",
		Long: `Create an action at the times of a cron expression in a time zone. Each run is an
action of its own, whose id is the schedule's name and the time of the run in UTC: nightly:20261121T000000Z.`,
		Example: `  head -100 examples/zipcodes.csv | sluice bulk schedule set nightly - --cron "30 2 * * *" --tenant acme --type echo
  sluice bulk schedule list
  sluice bulk schedule run nightly`,
	}
	command.AddCommand(
		newScheduleSetCommand(connect), newScheduleListCommand(connect), newScheduleShowCommand(connect),
		newScheduleChangeCommand(connect, "pause", "Start no further run until the schedule is resumed", server.PauseSchedule),
		newScheduleChangeCommand(connect, "resume", "Go on with a paused schedule, at its next time", server.ResumeSchedule),
		newScheduleRunCommand(connect), newScheduleRemoveCommand(connect),
	)
	return command
}

// oneSchedule is for commands that take the name of a schedule.
var oneSchedule = exit.One(`give the name of one schedule; "sluice bulk schedule list" shows them`)

func newScheduleListCommand(connect connector) *cobra.Command {
	return onServer(connect, &cobra.Command{
		Use:     "list",
		Short:   "List the schedules of a server, by name",
		Example: "  sluice bulk schedule list\n  sluice bulk schedule list --json",
		Args:    cobra.NoArgs,
	}, func(ctx context.Context, r *session, _ []string) error {
		all, err := r.server.Schedules(ctx)
		if err != nil {
			return err
		}
		return r.listSchedules(all, time.Now())
	})
}

// listSchedules prints schedules.
func (r *session) listSchedules(all []wire.Schedule, now time.Time) error {
	type column = term.Column[wire.Schedule]
	return term.List(&r.Output, all, "no schedules",
		column{Header: "name", Words: true, Cell: func(s *wire.Schedule) string { return s.Name }},
		column{Header: "cron", Words: true, Cell: func(s *wire.Schedule) string { return term.Printable(s.Cron) }},
		column{Header: "time zone", Words: true, Cell: func(s *wire.Schedule) string { return term.Printable(s.TimeZone) }},
		column{Header: "tenant", Words: true, Cell: func(s *wire.Schedule) string { return term.Name(s.Tenant) }},
		column{Header: "jobs", Cell: func(s *wire.Schedule) string { return humanize.Comma(s.Total) }},
		column{Header: "next run", Words: true, Cell: func(s *wire.Schedule) string { return nextRun(s, now) }},
		column{Header: "last run", Words: true, Cell: func(s *wire.Schedule) string {
			return term.Or(s.LastRunAt, "never", func(at time.Time) string { return term.Ago(now, at) })
		}})
}

// nextRun returns when a schedule runs next.
func nextRun(s *wire.Schedule, now time.Time) string {
	switch {
	case s.Paused:
		return "paused"
	case s.NextRunAt == nil:
		return "never"
	case !s.NextRunAt.After(now):
		return "now"
	}
	return "in " + term.Spell(s.NextRunAt.Sub(now))
}

func newScheduleShowCommand(connect connector) *cobra.Command {
	return newScheduleChangeCommand(connect, "show", "Show one schedule, and how far it is; with --json its jobs too", server.Schedule)
}

// newScheduleChangeCommand returns a command that shows the schedule afterwards.
func newScheduleChangeCommand(connect connector, name, short string, change func(server, context.Context, string) (wire.Schedule, error)) *cobra.Command {
	return onServer(connect, &cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Example: fmt.Sprintf("  sluice bulk schedule %s nightly", name),
		Args:    oneSchedule,
	}, func(ctx context.Context, r *session, args []string) error {
		schedule, err := change(r.server, ctx, args[0])
		if err != nil {
			return err
		}
		return r.showSchedule(&schedule)
	})
}

// showSchedule writes one schedule.
func (r *session) showSchedule(s *wire.Schedule) error {
	if r.JSON {
		return r.WriteJSON(s)
	}
	r.Facts(scheduleFacts(s, time.Now()), true)
	return nil
}

// scheduleFacts are the lines of "schedule show".
func scheduleFacts(s *wire.Schedule, now time.Time) []term.Fact {
	overlap := "a run is left out while the one before has not finished"
	if s.Overlap == "allow" {
		overlap = "a run starts also while the one before has not finished"
	}
	catchUp := "a run that was missed is not made"
	if s.CatchUpMS > 0 {
		catchUp = "a run that was missed is made up to " + term.Spell(time.Duration(s.CatchUpMS)*time.Millisecond) + " later, the latest of several"
	}
	next := nextRun(s, now)
	if s.NextRunAt != nil {
		next = s.NextRunAt.UTC().Format(time.RFC3339) + ", " + next
	}
	at := func(t time.Time) string { return term.When(t, now) }
	return []term.Fact{
		{"schedule", s.Name},
		{"cron", term.Printable(s.Cron) + ", " + term.Printable(s.TimeZone)},
		{"tenant", term.Printable(s.Tenant)},
		{"key", term.Printable(s.Key)},
		{"runs", term.Counted(s.Total, "job") + ", " + runsText(s.Type, s.Target) + ", class " + s.Class},
		{"overlap", overlap},
		{"catch up", catchUp},
		{"next run", next},
		{"last run", term.Or(s.LastRunAt, "", at)},
		{"action", term.Or(s.LastAction, "", term.Printable)},
		{"left out", term.Or(s.LastSkippedAt, "", at)},
		{"error", term.Printable(s.LastError)},
	}
}

func newScheduleRunCommand(connect connector) *cobra.Command {
	return onServer(connect, &cobra.Command{
		Use:   "run NAME",
		Short: "Start a run at once, also of a paused schedule",
		Example: `  sluice bulk schedule run nightly
  sluice bulk schedule run nightly --json | jq -r .id | xargs sluice bulk watch`,
		Args: oneSchedule,
	}, func(ctx context.Context, r *session, args []string) error {
		created, err := r.server.RunSchedule(ctx, args[0])
		if err != nil {
			return err
		}
		return r.Tell(&created, "%s: sluice bulk watch %s", term.Printable(created.ID), term.Printable(created.ID))
	})
}

func newScheduleRemoveCommand(connect connector) *cobra.Command {
	return onServer(connect, &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a schedule; the actions that it made go on",
		Example: "  sluice bulk schedule remove nightly",
		Args:    oneSchedule,
	}, func(ctx context.Context, r *session, args []string) error {
		if err := r.server.RemoveSchedule(ctx, args[0]); err != nil {
			return err
		}
		return r.Tell(map[string]any{"name": args[0], "removed": true}, "%s is removed", term.Printable(args[0]))
	})
}

// errTooMuch means that a file has more jobs or bytes than one schedule may have.
var errTooMuch = errors.New("a schedule has at most 10,000 jobs and 1 MiB of them: submit larger sets with \"sluice bulk submit\", from a cron of your own")
