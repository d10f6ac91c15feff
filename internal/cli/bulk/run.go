package bulk

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/dustin/go-humanize"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/internal/cli/bulk/intake"
	"github.com/sluice-project/sluice/internal/cli/bulk/local"
	"github.com/sluice-project/sluice/internal/cli/bulk/report"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/input"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// bulkRun is one "sluice bulk run".
type bulkRun struct {
	flags  *runFlags
	file   string
	spec   bulk.Spec
	config bulk.Config
	// webhooks are the options for jobs that are sent to a URL.
	webhooks webhook.Options
	open     opener
	input    func() (intake.RowInput, error)
	// topic is the input if it is a topic; otherwise nil.
	topic *intake.TopicRows
	term.Output
}

// inputOpener opens a file of rows ("-": stdin), which must have the given column.
type inputOpener func(file string, stdin io.Reader, column string) (intake.RowInput, error)

// Run reads the file, runs its jobs, and reports.
func (r *bulkRun) Run(ctx context.Context) (err error) {
	rows, err := r.input()
	if err != nil {
		return err
	}
	defer rows.Close() // The file was only read.
	dir, remove, err := r.directory()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	engine, err := r.open(dir, r.config, r.webhooks)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	if err := r.checkData(ctx, engine); err != nil {
		return err
	}
	// The directory is locked first, so that no other command resumes the same run.
	if r.topic, _ = rows.(*intake.TopicRows); r.topic != nil {
		if err := r.topic.Begin(ctx); err != nil {
			return err
		}
		if r.topic.Empty() {
			return r.nothing(ctx, engine)
		}
	}
	ids, err := r.takeIn(ctx, engine, rows)
	if errors.Is(err, intake.ErrNoRows) && r.topic != nil { // all records were left out
		return r.nothing(ctx, engine)
	}
	if err != nil {
		return r.stopped(err)
	}
	// Start after all are sealed; otherwise the first would have a head start.
	if err := engine.Start(ctx); err != nil {
		return err
	}
	return r.runJobs(ctx, engine, ids)
}

// directory returns where the data goes, and a function that removes it afterwards.
func (r *bulkRun) directory() (dir string, remove func() error, err error) {
	if r.flags.data != "" {
		return r.flags.data, func() error { return nil }, nil
	}
	dir, err = os.MkdirTemp("", "sluice-run-")
	if err != nil {
		return "", nil, fmt.Errorf("a temporary directory for the run (or give --data): %w", err)
	}
	return dir, func() error { return os.RemoveAll(dir) }, nil
}

// checkData refuses a rate other than a kept directory's, and prints the actions that it brings
// into the run.
func (r *bulkRun) checkData(ctx context.Context, engine local.Engine) error {
	if r.flags.data == "" {
		return nil
	}
	settings, err := engine.Settings(ctx)
	if err != nil {
		return err
	}
	if limits := settings.Limits; limits != nil && r.flags.rps > 0 && limits.RequestsPerSecond != r.flags.rps {
		return exit.Usage("--rps: %s has a stored limit of %g requests per second, which stands: leave out --rps, or change it on a server (PUT /v1/limits)",
			r.flags.data, limits.RequestsPerSecond)
	}
	left, err := engine.Actions(ctx, bulk.ActionFilter{Unfinished: true})
	if err != nil {
		return err
	}
	if len(left) > 0 {
		r.Say("%s holds %s of earlier runs that have not finished: they go on too", r.flags.data, term.Counted(int64(len(left)), "action"))
	}
	return nil
}

// takeIn stores the whole file and seals its actions.
func (r *bulkRun) takeIn(ctx context.Context, engine local.Engine, rows intake.RowInput) ([]string, error) {
	name := input.Name(r.file)
	start := time.Now()
	in := intake.New(engine, name, r.flags.column, r.spec)
	err := readRows(ctx, &r.Output, in, "reading", rows)
	if err != nil && r.topic.Resumes() {
		return nil, err // a later run resumes what is stored
	}
	if err != nil {
		// Cleaning up must work after an interruption as well.
		abandon, cancel := context.WithTimeout(context.WithoutCancel(ctx), local.DrainGrace)
		defer cancel()
		return nil, errors.Join(err, in.Abandon(abandon))
	}
	ids, err := in.Seal(ctx)
	if err != nil {
		return nil, err
	}
	r.Say("%s: %s of %s, read and stored in %s", name, term.Counted(in.Rows(), "job"),
		term.Counted(int64(len(ids)), "tenant"), term.Spell(time.Since(start)))
	return ids, nil
}

// readRows reads the rows into an intake and shows the progress.
func readRows(ctx context.Context, o *term.Output, in *intake.Intake, verb string, rows intake.RowInput) error {
	shown := term.NewReading(o.Err, verb, "job", rows, o.JSON)
	defer shown.Close()
	in.Progress = shown.Show
	if topic, is := rows.(*intake.TopicRows); is {
		in.Vary = topic.Vary
	}
	return in.Read(ctx, rows)
}

// stopped gives an interruption its exit code.
func (r *bulkRun) stopped(err error) error {
	if exit.IsCanceled(err) {
		return exit.Interrupted(errors.New("interrupted while the input was read: nothing of it has run"))
	}
	return err
}

// runJobs watches the actions to their end and reports.
func (r *bulkRun) runJobs(ctx context.Context, engine local.Engine, ids []string) error {
	shown, tracked := term.DisplayOn(r.Err, r.flags.top, r.JSON), report.NewTracker(time.Now(), len(ids))
	actions, err := local.Follow(ctx, engine, ids, local.PollInterval, func(at time.Time, actions []bulk.Action) {
		shown.Show(tracked.Observe(at, actions))
	})
	shown.Close()
	if err != nil && !exit.IsCanceled(err) {
		return err
	}
	if err != nil {
		return r.interrupt(ctx, engine, ids, actions)
	}
	return r.finish(ctx, engine, report.New(actions, tracked), actions)
}

// interrupt drains the engine, and prints what is left and where.
func (r *bulkRun) interrupt(ctx context.Context, engine local.Engine, ids []string, actions []bulk.Action) error {
	r.Say("interrupted: waiting up to %s for the jobs in flight", local.DrainGrace)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), local.DrainGrace+time.Second)
	defer cancel()
	stopped := engine.Stop(ctx)
	if _, err := local.Refresh(ctx, engine, ids, actions); err != nil {
		stopped = errors.Join(stopped, err)
	}
	lines := make([]term.Standing, len(actions))
	for i := range actions {
		lines[i] = report.StandingOf(actions[i].Tenant, &actions[i])
	}
	if !r.JSON {
		report.UnfinishedTable(r.Err, term.ByJobs(lines), r.Err.Columns(), r.flags.top)
	}
	all := term.Sum("", lines)
	where := "nothing of them is kept (--data DIR keeps them)"
	if r.flags.data != "" {
		where = fmt.Sprintf("they are kept in %s, and go on with: sluice serve --data %s", r.flags.data, r.flags.data)
	}
	if r.topic.Resumes() {
		where = "the same command goes on with them"
	}
	err := fmt.Errorf("interrupted: %s of %s are not finished; %s",
		humanize.Comma(all.Total-all.Done()), term.Counted(all.Total, "job"), where)
	return exit.Interrupted(errors.Join(err, stopped))
}

// finish writes the report and returns the error that the command ends with.
func (r *bulkRun) finish(ctx context.Context, engine local.Engine, result *report.Run, actions []bulk.Action) error {
	err := result.Merge(r.spec.Aggregate, actions)
	if err != nil {
		return err
	}
	result.Fairness = engine.Fairness()
	if r.JSON {
		err = result.WriteJSON(r.Out)
	} else {
		err = r.writeText(ctx, engine, result, actions)
	}
	if err == nil && r.topic != nil && result.Accounted() {
		err = r.topic.Done(ctx)
	}
	return errors.Join(err, result.Verdict())
}

// nothing ends a run without jobs.
func (r *bulkRun) nothing(ctx context.Context, engine local.Engine) error {
	r.Say("%s: there is nothing to take", r.topic.Name())
	if r.JSON {
		return r.finish(ctx, engine, report.New(nil, report.NewTracker(time.Now(), 0)), nil)
	}
	return r.topic.Done(ctx)
}

// writeText writes the report for people.
func (r *bulkRun) writeText(ctx context.Context, engine local.Engine, result *report.Run, actions []bulk.Action) error {
	failed, err := report.ReadFailures(ctx, engine, actions, nil)
	if err != nil {
		return err
	}
	columns := r.Out.Columns()
	fmt.Fprintln(r.Out)
	result.TenantTable(r.Out, columns, r.flags.top)
	fmt.Fprintln(r.Out)
	result.Totals(r.Out)
	result.Merged.Write(r.Out, columns, r.flags.top, result)
	failed.Write(r.Out, columns)
	return nil
}

// opener opens the engine on a directory; options are those for webhooks.
type opener func(dir string, config bulk.Config, options webhook.Options) (local.Engine, error)
