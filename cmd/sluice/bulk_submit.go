package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
)

const submitLong = `Upload a file of jobs to a server and start them: one action for --tenant, or one
for each value of --tenant-column. FILE is CSV with a header, or NDJSON if its
name ends in .ndjson or .jsonl; "-" reads standard input.

Nothing starts before the whole file has been uploaded. If the file is wrong, the
actions are canceled; nothing of them has run. With --id the upload can be resumed:
after a failure the same command goes on from what the server has.

` + fromTopicLong + `

Without --watch it ends when the actions are sealed; with it, when they have
finished: exit code 0 if all COMPLETED, 1 if not.`

// submitFlags are those of "bulk submit".
type submitFlags struct {
	remoteFlags
	specFlags
	from                      fromTopicFlags
	tenant, column, id, runAt string
	events                    []string
	watch                     bool
}

func newSubmitCommand(connect connector) *cobra.Command {
	var f submitFlags
	command := &cobra.Command{
		Use:   "submit (FILE | --from-topic TOPIC) (--tenant TENANT | --tenant-column COLUMN) (--url URL | --type TYPE)",
		Short: "Upload a file of jobs, or a topic of them, to a server and start them",
		Long:  submitLong,
		Example: `  sluice bulk submit examples/zipcodes.csv --tenant acme --id zips --type echo --watch
  sluice bulk submit examples/zipcodes.csv --tenant-column state --type echo --aggregate count
  sluice bulk submit orders.ndjson --tenant acme --id orders-2025-11 --url https://api.example.com/orders
  sluice bulk submit --from-topic orders --group billing --tenant-key --type charge`,
		Args: f.from.args,
	}
	command.RunE = f.with(connect, func(ctx context.Context, r *remote, args []string) error {
		spec, err := f.full(command)
		if err != nil {
			return err
		}
		if f.from.topic != "" {
			return r.submitTopic(ctx, command, &f, spec)
		}
		rows, err := bulkInput(args[0], command.InOrStdin(), f.column)
		if err != nil {
			return err
		}
		defer rows.Close() // It was only read.
		if f.tenant != "" {
			rows = &ofTenant{rows, f.tenant}
		}
		return r.submit(ctx, args[0], rows, spec, &f)
	})
	flags := command.Flags()
	flags.StringVar(&f.tenant, "tenant", "", "the `tenant` of all jobs")
	flags.StringVar(&f.column, "tenant-column", "", "the `column` (NDJSON: field) that names the tenant of a row")
	f.specFlags.add(command)
	f.from.add(command)
	flags.StringVar(&f.id, "id", "", "the action's `id`, with --tenant; creating it twice creates it once")
	flags.StringVar(&f.runAt, "run-at", "", "the earliest `time` of the first attempt, such as 2025-11-28T08:00:00Z")
	flags.StringSliceVar(&f.events, "events", nil, "publish `what` beside the status of the actions: jobs, an event of each job that is done")
	flags.BoolVar(&f.watch, "watch", false, "show how the actions go on until they have finished")
	f.remoteFlags.add(command)
	return command
}

// full is the spec of the actions, but for the tenant.
func (f *submitFlags) full(command *cobra.Command) (bulk.Spec, error) {
	spec, err := f.spec(command)
	switch {
	case f.from.topic == "" && (f.tenant == "") == (f.column == ""):
		return spec, wrongUsage("say whose jobs they are: either --tenant TENANT or --tenant-column COLUMN")
	case f.id != "" && f.tenant == "":
		return spec, wrongUsage("--id names one action, so it needs --tenant")
	case f.id != "" && f.from.topic != "":
		return spec, wrongUsage("--id is for files: with --from-topic --group lets the upload be resumed")
	case err != nil:
		return spec, err
	}
	spec.ID, spec.Events = f.id, f.events
	check := bulk.Spec{Tenant: "tenant", Type: "type", Events: f.events}
	_, err = check.Normalize()
	if wrong := new(bulk.SpecError); errors.As(err, &wrong) {
		return spec, flagError(wrong)
	}
	if f.runAt != "" {
		if spec.RunAt, err = time.Parse(time.RFC3339, f.runAt); err != nil {
			return spec, wrongUsage("--run-at: %q: want a time such as 2025-11-28T08:00:00Z", f.runAt)
		}
	}
	return spec, nil
}

// ofTenant are rows that all have one tenant.
type ofTenant struct {
	rowInput
	tenant string
}

// Tenant returns that tenant.
func (r *ofTenant) Tenant() (string, error) { return r.tenant, nil }

// submitTopic uploads the records of a topic.
func (r *remote) submitTopic(ctx context.Context, command *cobra.Command, f *submitFlags, spec bulk.Spec) (err error) {
	until, err := f.from.check(f.column, f.tenant)
	if err != nil {
		return err
	}
	f.from.json = r.json
	// Two that go on with the same run at one time send the same under the same
	// ids, so they may be the same member.
	source := &topicSource{flags: &f.from, until: until, tenant: f.tenant, spec: spec, where: r.base, instance: memberOf(r.base)}
	rows, err := source.open(command)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if err := rows.begin(ctx); err != nil {
		return err
	}
	if rows.empty() {
		r.say("%s: there is nothing to take", rows.name())
		return nil
	}
	return r.submit(ctx, rows.name(), rows, spec, f)
}

// submit uploads and seals; with --watch it goes on to the end of the actions.
func (r *remote) submit(ctx context.Context, file string, rows rowInput, spec bulk.Spec, f *submitFlags) error {
	start := time.Now()
	in := newIntake(&remoteTaker{r.server}, inputName(file), f.column, spec)
	shown := newIntakeDisplay(r.err, "uploading", "job", rows, r.json)
	in.progress = shown.Show
	taking, _ := rows.(*topicInput)
	if taking != nil {
		in.vary = taking.vary
	}
	err := in.Read(ctx, rows)
	shown.Close()
	if errors.Is(err, errNoRows) && taking != nil { // all were left out
		return taking.done(ctx)
	}
	if err != nil {
		return r.abandon(ctx, in, spec.ID != "" || taking.resumes(), err)
	}
	ids, err := in.Seal(ctx)
	if err == nil && taking != nil {
		err = taking.done(ctx)
	}
	if err != nil {
		return err
	}
	r.say("%s: %s uploaded to %s in %s", inputName(file), counted(in.Rows(), "job"),
		counted(int64(len(ids)), "action"), spell(time.Since(start)))
	if f.watch {
		return r.watchAll(ctx, ids)
	}
	for _, id := range ids {
		action, err := r.server.Action(ctx, id)
		if err != nil {
			return err
		}
		if err := r.submitted(&action); err != nil {
			return err
		}
	}
	return nil
}

// submitted names an action that was started.
func (r *remote) submitted(a *wire.Action) error {
	if r.json {
		return r.writeJSON(a)
	}
	fmt.Fprintf(r.out, "%s  %s, %s\n", printable(a.ID), printable(a.Tenant), counted(a.Received, "job"))
	return nil
}

// abandon undoes an upload that failed, unless it can be resumed.
func (r *remote) abandon(ctx context.Context, in *intake, resumes bool, failure error) error {
	if interrupted(failure) {
		failure = &interruptedError{errors.New("interrupted during the upload: nothing of it has run")}
	}
	if resumes {
		if exitCode(failure) == exitUsage {
			return failure
		}
		return fmt.Errorf("%w; the same command goes on from what the server has", failure)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainGrace)
	defer cancel()
	return errors.Join(failure, in.Abandon(ctx))
}

// remoteTaker takes jobs in for a server.
type remoteTaker struct{ server server }

// Create implements jobTaker.
func (t *remoteTaker) Create(ctx context.Context, spec bulk.Spec) (bulk.Action, bool, error) {
	created, err := t.server.Create(ctx, client.NewAction(spec))
	if err != nil || spec.ID == "" {
		return bulk.Action{Spec: bulk.Spec{ID: created.ID}}, true, err
	}
	// An id that was given may have jobs already.
	action, err := t.server.Action(ctx, created.ID)
	return client.LocalAction(&action), false, err
}

// Append implements jobTaker.
func (t *remoteTaker) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	return t.server.Append(ctx, id, offset, payloads)
}

// Seal implements jobTaker.
func (t *remoteTaker) Seal(ctx context.Context, id string, total int64) (bulk.Action, error) {
	action, err := t.server.Seal(ctx, id, total)
	return client.LocalAction(&action), err
}

// Cancel implements jobTaker.
func (t *remoteTaker) Cancel(ctx context.Context, id string) (bulk.Action, error) {
	action, err := t.server.Cancel(ctx, id)
	return client.LocalAction(&action), err
}

// remoteLook is how often the actions of a submission are looked at.
const remoteLook = time.Second

// watchAll shows actions until all have finished.
func (r *remote) watchAll(ctx context.Context, ids []string) error {
	if len(ids) == 1 {
		action, err := r.watch(ctx, ids[0])
		if err != nil {
			return err
		}
		if !r.json {
			if err := r.show(&action); err != nil {
				return err
			}
		}
		return ending(&action)
	}
	var shown display = silent{}
	if !r.json {
		shown = displayOn(r.err, 10)
	}
	tracked := newTracker(time.Now(), len(ids))
	var last *moment
	actions, err := r.poll(ctx, ids, func(actions []bulk.Action) {
		last = tracked.Observe(time.Now(), actions)
		shown.Show(last)
	})
	if last != nil {
		shown.Close(last)
	}
	if interrupted(err) {
		return &interruptedError{errors.New("no longer watched; the actions go on: sluice bulk list")}
	}
	if err != nil {
		return err
	}
	return r.ended(actions)
}

// poll looks at actions until all have finished.
func (r *remote) poll(ctx context.Context, ids []string, see func([]bulk.Action)) ([]wire.Action, error) {
	actions, local := make([]wire.Action, len(ids)), make([]bulk.Action, len(ids))
	ticker := time.NewTicker(remoteLook)
	defer ticker.Stop()
	for {
		left := 0
		for i, id := range ids {
			if actions[i].FinishedAt != nil {
				continue
			}
			var err error
			if actions[i], err = r.server.Action(ctx, id); err != nil {
				return nil, err
			}
			if local[i] = client.LocalAction(&actions[i]); actions[i].FinishedAt == nil {
				left++
			}
		}
		see(local)
		if left == 0 {
			return actions, nil
		}
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// ended writes the results of actions; the error is that of those that did not
// complete.
func (r *remote) ended(actions []wire.Action) error {
	var failures []error
	for i := range actions {
		a := &actions[i]
		if err := ending(a); err != nil {
			failures = append(failures, err)
		}
		if r.json {
			if err := r.writeJSON(a); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(r.out, "%s  %s: %s, %s\n", printable(a.ID), printable(a.Tenant), statusOf(a), whereabouts(a))
	}
	if len(failures) > 1 {
		return fmt.Errorf("%d of %d actions did not complete, the first: %w", len(failures), len(actions), failures[0])
	}
	return errors.Join(failures...)
}
