package main

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
)

// bulkRun is one "sluice bulk run".
type bulkRun struct {
	flags  *runFlags
	file   string
	spec   bulk.Spec
	config bulk.Config
	// webhooks says how jobs are sent to a URL.
	webhooks webhook.Options
	open     opener
	input    func() (rowInput, error)
	// topic is the input if it is one of a topic, or nil.
	topic *topicInput
	out   screen
	err   screen
}

// rowInput is a source of rows that must be closed.
type rowInput interface {
	rowSource
	io.Closer
	// Progress is how many bytes were read, and of how many; 0: not known.
	Progress() (read, size int64)
}

// inputOpener opens a file of rows ("-": stdin) that must have a column.
type inputOpener func(file string, stdin io.Reader, column string) (rowInput, error)

// drainGrace is how long an interrupted command waits for the jobs in flight.
const drainGrace = 10 * time.Second

// Run reads the file, runs its jobs, and reports.
func (r *bulkRun) Run(ctx context.Context) (err error) {
	rows, err := r.input()
	if err != nil {
		return err
	}
	defer rows.Close() // It was only read.
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
	// Not before the directory is ours: then nobody else goes on with the same.
	if r.topic, _ = rows.(*topicInput); r.topic != nil {
		if err := r.topic.begin(ctx); err != nil {
			return err
		}
		if r.topic.empty() {
			return r.nothing(ctx, engine)
		}
	}
	ids, err := r.takeIn(ctx, engine, rows)
	if errors.Is(err, errNoRows) && r.topic != nil { // all were left out
		return r.nothing(ctx, engine)
	}
	if err != nil {
		return r.stopped(err)
	}
	// Not before all are sealed: else the first would have a head start.
	if err := engine.Start(ctx); err != nil {
		return err
	}
	return r.runJobs(ctx, engine, ids)
}

// directory returns where the data goes, and how to remove it afterwards.
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

// checkData tells of what a kept directory brings into the run.
func (r *bulkRun) checkData(ctx context.Context, engine runner) error {
	if r.flags.data == "" {
		return nil
	}
	settings, err := engine.Settings(ctx)
	if err != nil {
		return err
	}
	if limits := settings.Limits; limits != nil && r.flags.rps > 0 && limits.RequestsPerSecond != r.flags.rps {
		return wrongUsage("--rps: %s has a stored limit of %g requests per second, which stands: leave out --rps, or change it on a server (PUT /v1/limits)",
			r.flags.data, limits.RequestsPerSecond)
	}
	left, err := engine.Actions(ctx, bulk.ActionFilter{Unfinished: true})
	if err != nil {
		return err
	}
	if len(left) > 0 {
		r.say("%s holds %s of earlier runs that have not finished: they go on too", r.flags.data, counted(int64(len(left)), "action"))
	}
	return nil
}

// say tells people something; with --json there are none.
func (r *bulkRun) say(format string, args ...any) {
	if !r.flags.json {
		fmt.Fprintf(r.err, format+"\n", args...)
	}
}

// takeIn stores the whole file and lets its actions run.
func (r *bulkRun) takeIn(ctx context.Context, engine runner, rows rowInput) ([]string, error) {
	name := inputName(r.file)
	start := time.Now()
	in := newIntake(engine, name, r.flags.column, r.spec)
	shown := newIntakeDisplay(r.err, "reading", "job", rows, r.flags.json)
	in.progress = shown.Show
	if r.topic != nil {
		in.vary = r.topic.vary
	}
	err := in.Read(ctx, rows)
	shown.Close()
	if err != nil && r.topic.resumes() {
		return nil, err // what is stored is gone on with
	}
	if err != nil {
		// The command may have been interrupted, but what it made is its to undo.
		abandon, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainGrace)
		defer cancel()
		return nil, errors.Join(err, in.Abandon(abandon))
	}
	ids, err := in.Seal(ctx)
	if err != nil {
		return nil, err
	}
	r.say("%s: %s of %s, read and stored in %s", name, counted(in.Rows(), "job"),
		counted(int64(len(ids)), "tenant"), spell(time.Since(start)))
	return ids, nil
}

// stopped gives an interruption its exit code.
func (r *bulkRun) stopped(err error) error {
	if interrupted(err) {
		return &interruptedError{errors.New("interrupted while the input was read: nothing of it has run")}
	}
	return err
}

// runJobs watches the actions to their end and reports.
func (r *bulkRun) runJobs(ctx context.Context, engine runner, ids []string) error {
	var shown display = silent{}
	if !r.flags.json {
		shown = displayOn(r.err, r.flags.top)
	}
	tracked := newTracker(time.Now(), len(ids))
	var last *moment
	actions, err := follow(ctx, engine, ids, lookEvery, func(at time.Time, actions []bulk.Action) {
		last = tracked.Observe(at, actions)
		shown.Show(last)
	})
	if last != nil {
		shown.Close(last)
	}
	if err != nil && !interrupted(err) {
		return err
	}
	if err != nil {
		return r.interrupt(ctx, engine, ids, actions)
	}
	return r.finish(ctx, engine, newReport(actions, tracked), actions)
}

// interrupt drains, and says what is left and where.
func (r *bulkRun) interrupt(ctx context.Context, engine runner, ids []string, actions []bulk.Action) error {
	r.say("interrupted: waiting up to %s for the jobs in flight", drainGrace)
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainGrace+time.Second)
	defer cancel()
	stopped := engine.Stop(ctx)
	if _, err := look(ctx, engine, ids, actions); err != nil {
		stopped = errors.Join(stopped, err)
	}
	lines := make([]standing, len(actions))
	for i := range actions {
		lines[i] = standingOf(actions[i].Tenant, &actions[i])
	}
	if !r.flags.json {
		unfinishedTable(r.err, byJobs(lines), r.err.Columns(), r.flags.top)
	}
	all := sum("", lines)
	where := "nothing of them is kept (--data DIR keeps them)"
	if r.flags.data != "" {
		where = fmt.Sprintf("they are kept in %s, and go on with: sluice serve --data %s", r.flags.data, r.flags.data)
	}
	if r.topic.resumes() {
		where = "the same command goes on with them"
	}
	err := fmt.Errorf("interrupted: %s of %s are not finished; %s",
		humanize.Comma(all.Total-all.Done()), counted(all.Total, "job"), where)
	return &interruptedError{errors.Join(err, stopped)}
}

// finish writes the report and decides how the command ends.
func (r *bulkRun) finish(ctx context.Context, engine runner, result *runReport, actions []bulk.Action) error {
	merged, err := mergeAggregates(r.spec.Aggregate, actions)
	if err != nil {
		return err
	}
	jain, windows := engine.Jain()
	if r.flags.json {
		err = result.writeJSON(r.out, merged, jain, windows)
	} else {
		err = r.writeText(ctx, engine, result, merged, actions, jain, windows)
	}
	if err == nil && r.topic != nil && result.Accounted() {
		err = r.topic.done(ctx)
	}
	return errors.Join(err, result.Verdict())
}

// nothing ends a run that has nothing to do.
func (r *bulkRun) nothing(ctx context.Context, engine runner) error {
	r.say("%s: there is nothing to take", r.topic.name())
	if r.flags.json {
		return r.finish(ctx, engine, newReport(nil, newTracker(time.Now(), 0)), nil)
	}
	return r.topic.done(ctx)
}

// writeText writes the report for people.
func (r *bulkRun) writeText(ctx context.Context, engine runner, result *runReport, merged *aggregates,
	actions []bulk.Action, jain float64, windows int,
) error {
	failed, err := readFailures(ctx, engine, actions, nil)
	if err != nil {
		return err
	}
	columns := r.out.Columns()
	fmt.Fprintln(r.out)
	result.tenantTable(r.out, columns, r.flags.top)
	fmt.Fprintln(r.out)
	result.totals(r.out, jain, windows)
	merged.write(r.out, columns, r.flags.top, result)
	failed.write(r.out, columns)
	return nil
}
