package bulk

import (
	"context"
	"encoding/json"
	"errors"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/cli/bulk/intake"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/input"
	"github.com/sluice-project/sluice/internal/cli/remote"
)

// scheduleFlags are those of "bulk schedule set".
type scheduleFlags struct {
	remote.Flags
	specFlags
	tenant, cron, zone, overlap string
	catchUp                     time.Duration
	events                      []string
}

const scheduleSetLong = `Create a schedule, or replace the definition of an existing one. Its history and
whether it is paused are kept; so is the time of its next run, if --cron and
--time-zone stay the same.

FILE has the jobs of each run, at most 10,000 and 1 MiB: CSV with a header, or NDJSON
if its name ends in .ndjson or .jsonl; "-" reads standard input.

--cron takes five fields (minute, hour, day of the month, month, day of the week), or
@hourly, @daily, @weekly, @monthly, @yearly, or "@every 90m".`

func newScheduleSetCommand(connect connector) *cobra.Command {
	var f scheduleFlags
	command := &cobra.Command{
		Use:   "set NAME FILE --cron EXPRESSION --tenant TENANT (--url URL | --type TYPE)",
		Short: "Create a schedule, or replace its definition",
		Long:  scheduleSetLong,
		Example: `  head -100 examples/zipcodes.csv | sluice bulk schedule set nightly - --cron "30 2 * * *" \
      --time-zone Asia/Seoul --tenant acme --type echo
  echo '{"report":"weekly"}' | sluice bulk schedule set report - --cron @weekly --tenant acme \
      --url https://api.example.com/reports --overlap allow --catch-up 12h`,
		Args: exit.Between(2, 2, `give the name of the schedule and the file of its jobs, or "-" for standard input`),
	}
	command.RunE = func(_ *cobra.Command, args []string) error {
		asked, err := f.asked(command, args[1])
		if err != nil {
			return err
		}
		return withServer(&f.Flags, connect, func(ctx context.Context, r *session, args []string) error {
			stored, err := r.server.PutSchedule(ctx, args[0], asked)
			if err != nil {
				return byFlags(err)
			}
			return r.showSchedule(&stored)
		})(command, args)
	}
	f.specFlags.add(command)
	f.addServer(command)
	flags := command.Flags()
	flags.StringVar(&f.cron, "cron", "", "when: five fields, or @daily and its like, or \"@every 90m\"; required (`expression`)")
	flags.StringVar(&f.zone, "time-zone", "UTC", "the IANA time `zone` that the fields are in, such as Asia/Seoul")
	flags.StringVar(&f.tenant, "tenant", "", "the `tenant` whose jobs these are; required")
	flags.StringVar(&f.overlap, "overlap", string(bulk.OverlapSkip), "while the run before has not finished: `skip` the next one, or allow it")
	flags.DurationVar(&f.catchUp, "catch-up", time.Hour, "how late a run that was missed may start, up to 168h (0: it does not)")
	flags.StringSliceVar(&f.events, "events", nil, "publish an event of each job that is done: `jobs`")
	f.Flags.Add(command)
	return command
}

// asked returns the schedule that the flags and the file describe.
func (f *scheduleFlags) asked(command *cobra.Command, file string) (n wire.NewSchedule, err error) {
	spec, err := f.spec(command)
	switch {
	case f.cron == "":
		return n, exit.Usage(`say when: --cron "30 2 * * *", or --cron @daily`)
	case f.tenant == "":
		return n, exit.Usage("say whose jobs they are: --tenant TENANT")
	case f.catchUp < 0:
		return n, exit.Usage("--catch-up: %v: want a time such as 2h, or 0", f.catchUp)
	case err != nil:
		return n, err
	}
	catchUp := f.catchUp.Milliseconds()
	n = wire.NewSchedule{
		Cron: f.cron, TimeZone: f.zone, Overlap: f.overlap, CatchUpMS: &catchUp, Tenant: f.tenant, Type: spec.Type,
		Class: spec.Class.String(), Key: spec.Key, Cost: spec.Cost, Aggregate: spec.Aggregate, MaxAttempts: spec.MaxAttempts, TimeoutMS: spec.Timeout.Milliseconds(),
		FailAbove: spec.FailAbove, Events: f.events, KeepResults: spec.KeepResults,
	}
	if spec.Target != nil {
		n.Target = &wire.Target{Name: spec.Target.Name, URL: spec.Target.URL}
	}
	n.Jobs, err = scheduleJobs(file, command.InOrStdin())
	if err != nil {
		return n, exit.Usage("%w", err)
	}
	return n, nil
}

// scheduleJobs reads the jobs of a file.
func scheduleJobs(file string, stdin io.Reader) (jobs []json.RawMessage, err error) {
	rows, err := intake.OpenRows(file, stdin, "")
	if err != nil {
		return nil, err
	}
	defer rows.Close() // The file was only read.
	for size := 0; ; {
		row, err := rows.Next()
		switch {
		case errors.Is(err, io.EOF) && len(jobs) == 0:
			return nil, &input.Error{File: input.Name(file), Err: intake.ErrNoRows}
		case errors.Is(err, io.EOF):
			return jobs, nil
		case err != nil:
			return nil, input.Located(file, err)
		}
		if size += len(row); len(jobs) == bulk.MaxScheduleJobs || size > bulk.MaxScheduleBytes {
			return nil, &input.Error{File: input.Name(file), Err: errTooMuch}
		}
		jobs = append(jobs, slices.Clone(row))
	}
}
