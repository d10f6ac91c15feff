package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
)

// scheduleServer is what "bulk schedule" needs of a server.
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
		Short: "Make an action again and again, at the times of a cron expression",
		Long: `Make an action again and again, at the times of a cron expression in a time
zone. Each run is an action of its own, whose id is the schedule's name and the
time of the run in UTC: nightly:20261121T000000Z.`,
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
func oneSchedule(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return wrongUsage(`give the name of one schedule; "sluice bulk schedule list" shows them`)
	}
	return nil
}

func newScheduleListCommand(connect connector) *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:     "list",
		Short:   "List the schedules of a server, by name",
		Example: "  sluice bulk schedule list\n  sluice bulk schedule list --json",
		Args:    cobra.NoArgs,
		RunE: f.with(connect, func(ctx context.Context, r *remote, _ []string) error {
			all, err := r.server.Schedules(ctx)
			if err != nil {
				return err
			}
			return r.listSchedules(all, time.Now())
		}),
	}
	f.add(command)
	return command
}

// listSchedules writes schedules as a table; with --json each on a line.
func (r *remote) listSchedules(all []wire.Schedule, now time.Time) error {
	g := grid{
		Header: []string{"name", "cron", "time zone", "tenant", "jobs", "next run", "last run"},
		Left:   map[int]bool{0: true, 1: true, 2: true, 3: true, 5: true, 6: true},
	}
	for i := range all {
		s := &all[i]
		if r.json {
			if err := r.writeJSON(s); err != nil {
				return err
			}
			continue
		}
		last := "never"
		if s.LastRunAt != nil {
			last = ago(now, *s.LastRunAt)
		}
		g.Rows = append(g.Rows, []string{
			s.Name, printable(s.Cron), printable(s.TimeZone), clip(printable(s.Tenant), longestName), humanize.Comma(s.Total), nextRun(s, now), last,
		})
	}
	switch {
	case r.json:
	case len(all) == 0:
		r.say("no schedules")
	default:
		g.Write(r.out, r.out.Columns())
	}
	return nil
}

// nextRun says when a schedule runs next.
func nextRun(s *wire.Schedule, now time.Time) string {
	switch {
	case s.Paused:
		return "paused"
	case s.NextRunAt == nil:
		return "never"
	case !s.NextRunAt.After(now):
		return "now"
	}
	return "in " + spell(s.NextRunAt.Sub(now))
}

func newScheduleShowCommand(connect connector) *cobra.Command {
	return newScheduleChangeCommand(connect, "show", "Show one schedule, and how far it is; with --json its jobs too", server.Schedule)
}

// newScheduleChangeCommand returns a command that shows the schedule afterwards.
func newScheduleChangeCommand(connect connector, name, short string, change func(server, context.Context, string) (wire.Schedule, error)) *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Example: fmt.Sprintf("  sluice bulk schedule %s nightly", name),
		Args:    oneSchedule,
		RunE: f.with(connect, func(ctx context.Context, r *remote, args []string) error {
			schedule, err := change(r.server, ctx, args[0])
			if err != nil {
				return err
			}
			return r.showSchedule(&schedule)
		}),
	}
	f.add(command)
	return command
}

// showSchedule writes one schedule.
func (r *remote) showSchedule(s *wire.Schedule) error {
	if r.json {
		return r.writeJSON(s)
	}
	r.writeFacts(scheduleFacts(s, time.Now()))
	return nil
}

// scheduleFacts are the lines of "schedule show".
func scheduleFacts(s *wire.Schedule, now time.Time) [][2]string {
	runs := "type " + printable(s.Type)
	if s.Target != nil {
		runs = "webhook to " + printable(s.Target.URL)
	}
	overlap := "a run is left out while the one before has not finished"
	if s.Overlap == "allow" {
		overlap = "a run starts also while the one before has not finished"
	}
	catchUp := "a run that was missed is not made"
	if s.CatchUpMS > 0 {
		catchUp = "a run that was missed is made up to " + spell(time.Duration(s.CatchUpMS)*time.Millisecond) + " later, the latest of several"
	}
	next := nextRun(s, now)
	if s.NextRunAt != nil {
		next = s.NextRunAt.UTC().Format(time.RFC3339) + ", " + next
	}
	facts := [][2]string{
		{"schedule", s.Name},
		{"cron", printable(s.Cron) + ", " + printable(s.TimeZone)},
		{"tenant", printable(s.Tenant)},
		{"runs", counted(s.Total, "job") + ", " + runs + ", class " + s.Class},
		{"overlap", overlap},
		{"catch up", catchUp},
		{"next run", next},
	}
	if s.LastRunAt != nil {
		facts = append(facts, [2]string{"last run", when(*s.LastRunAt, now)})
	}
	if s.LastAction != nil {
		facts = append(facts, [2]string{"action", printable(*s.LastAction)})
	}
	if s.LastSkippedAt != nil {
		facts = append(facts, [2]string{"left out", when(*s.LastSkippedAt, now)})
	}
	if s.LastError != "" {
		facts = append(facts, [2]string{"error", printable(s.LastError)})
	}
	return facts
}

func newScheduleRunCommand(connect connector) *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:   "run NAME",
		Short: "Start a run at once, also of a paused schedule",
		Example: `  sluice bulk schedule run nightly
  sluice bulk schedule run nightly --json | jq -r .id | xargs sluice bulk watch`,
		Args: oneSchedule,
		RunE: f.with(connect, func(ctx context.Context, r *remote, args []string) error {
			created, err := r.server.RunSchedule(ctx, args[0])
			if err != nil {
				return err
			}
			if r.json {
				return r.writeJSON(&created)
			}
			fmt.Fprintf(r.out, "%s: sluice bulk watch %s\n", printable(created.ID), printable(created.ID))
			return nil
		}),
	}
	f.add(command)
	return command
}

func newScheduleRemoveCommand(connect connector) *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:     "remove NAME",
		Short:   "Remove a schedule; the actions that it made go on",
		Example: "  sluice bulk schedule remove nightly",
		Args:    oneSchedule,
		RunE: f.with(connect, func(ctx context.Context, r *remote, args []string) error {
			if err := r.server.RemoveSchedule(ctx, args[0]); err != nil {
				return err
			}
			if r.json {
				return r.writeJSON(map[string]any{"name": args[0], "removed": true})
			}
			fmt.Fprintf(r.out, "%s is removed\n", printable(args[0]))
			return nil
		}),
	}
	f.add(command)
	return command
}

// errTooMuch: a file has more than one schedule may have.
var errTooMuch = errors.New("a schedule has at most 10,000 jobs and 1 MiB of them: submit larger sets with \"sluice bulk submit\", from a cron of your own")
