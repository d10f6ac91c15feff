package bulk

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/internal/cli/bulk/intake"
	"github.com/sluice-project/sluice/internal/cli/bulk/local"
	"github.com/sluice-project/sluice/internal/cli/bulk/report"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/input"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
)

const submitLong = `Upload a file of jobs to a server and start them: one action for --tenant, or one
for each value of --tenant-column. FILE is CSV with a header, or NDJSON if its
name ends in .ndjson or .jsonl; "-" reads standard input.

No job starts before the whole file is uploaded. If the file is wrong, the actions are
canceled before any job has run. With --id an upload can be resumed: after a failure
the same command continues from the jobs that the server has.

` + intake.TopicHelp + `

Without --watch the command ends when the actions are sealed; with it, when they have
finished: exit code 0 if all COMPLETED, 1 if not.`

// submitFlags are those of "bulk submit".
type submitFlags struct {
	remote.Flags
	specFlags
	from                      intake.TopicFlags
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
		Args: f.from.Args,
	}
	command.RunE = withServer(&f.Flags, connect, func(ctx context.Context, r *session, args []string) error {
		spec, err := f.full(command)
		if err != nil {
			return err
		}
		if f.from.Topic != "" {
			return r.submitTopic(ctx, command, &f, spec)
		}
		rows, err := intake.OpenRows(args[0], command.InOrStdin(), f.column)
		if err != nil {
			return err
		}
		defer rows.Close() // The file was only read.
		if f.tenant != "" {
			rows = &ofTenant{rows, f.tenant}
		}
		return r.submit(ctx, args[0], rows, spec, &f)
	})
	flags := command.Flags()
	flags.StringVar(&f.tenant, "tenant", "", "the `tenant` of all jobs")
	flags.StringVar(&f.column, "tenant-column", "", "the `column` (NDJSON: field) that names the tenant of a row")
	f.specFlags.add(command)
	f.addServer(command)
	f.from.Add(command)
	flags.StringVar(&f.id, "id", "", "the action's `id`, with --tenant; the upload is idempotent and can be resumed")
	flags.StringVar(&f.runAt, "run-at", "", "the earliest `time` of the first attempt, such as 2025-11-28T08:00:00Z")
	flags.StringSliceVar(&f.events, "events", nil, "publish `what` besides the status of the actions: jobs, an event of each job that is done")
	flags.BoolVar(&f.watch, "watch", false, "show the progress of the actions until they have finished")
	f.Flags.Add(command)
	return command
}

// full returns the spec of the actions without the tenant.
func (f *submitFlags) full(command *cobra.Command) (bulk.Spec, error) {
	spec, err := f.spec(command, f.events...)
	switch {
	case f.from.Topic == "" && (f.tenant == "") == (f.column == ""):
		return spec, exit.Usage("say whose jobs they are: either --tenant TENANT or --tenant-column COLUMN")
	case f.id != "" && f.tenant == "":
		return spec, exit.Usage("--id names one action, so it needs --tenant")
	case f.id != "" && f.from.Topic != "":
		return spec, exit.Usage("--id is for files: with --from-topic --group lets the upload be resumed")
	case err != nil:
		return spec, err
	}
	spec.ID = f.id
	if f.runAt != "" {
		if spec.RunAt, err = time.Parse(time.RFC3339, f.runAt); err != nil {
			return spec, exit.Usage("--run-at: %q: want a time such as 2025-11-28T08:00:00Z", f.runAt)
		}
	}
	return spec, nil
}

// ofTenant is an input whose rows all have one tenant.
type ofTenant struct {
	intake.RowInput
	tenant string
}

// Tenant returns that tenant.
func (r *ofTenant) Tenant() (string, error) { return r.tenant, nil }

// submitTopic uploads the records of a topic.
func (r *session) submitTopic(ctx context.Context, command *cobra.Command, f *submitFlags, spec bulk.Spec) (err error) {
	until, err := f.from.Check(f.column, f.tenant)
	if err != nil {
		return err
	}
	f.from.JSON = r.JSON
	// Two commands that resume the same run at one time send the same records under the same ids,
	// so they may be the same member.
	source := &intake.TopicSource{Flags: &f.from, Until: until, Tenant: f.tenant, Spec: spec, Where: r.base, Instance: intake.MemberOf(r.base)}
	rows, err := source.Open(command)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	if err := rows.Begin(ctx); err != nil {
		return err
	}
	if rows.Empty() {
		r.Say("%s: there is nothing to take", rows.Name())
		return nil
	}
	return r.submit(ctx, rows.Name(), rows, spec, f)
}

// submit uploads and seals; with --watch it follows the actions to their end.
func (r *session) submit(ctx context.Context, file string, rows intake.RowInput, spec bulk.Spec, f *submitFlags) error {
	start := time.Now()
	in := intake.New(&remoteTaker{r.server}, input.Name(file), f.column, spec)
	taking, _ := rows.(*intake.TopicRows)
	err := readRows(ctx, &r.Output, in, "uploading", rows)
	if errors.Is(err, intake.ErrNoRows) && taking != nil { // all records were left out
		return taking.Done(ctx)
	}
	if err != nil {
		return r.abandon(ctx, in, spec.ID != "" || taking.Resumes(), err)
	}
	ids, err := in.Seal(ctx)
	if err == nil && taking != nil {
		err = taking.Done(ctx)
	}
	if err != nil {
		return err
	}
	r.Say("%s: %s uploaded to %s in %s", input.Name(file), term.Counted(in.Rows(), "job"),
		term.Counted(int64(len(ids)), "action"), term.Spell(time.Since(start)))
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

// submitted prints the id of an action that was started.
func (r *session) submitted(a *wire.Action) error {
	return r.Tell(a, "%s  %s, %s", term.Printable(a.ID), term.Printable(a.Tenant), term.Counted(a.Received, "job"))
}

// abandon cancels the actions of a failed upload, unless it can be resumed.
func (r *session) abandon(ctx context.Context, in *intake.Intake, resumes bool, failure error) error {
	if exit.IsCanceled(failure) {
		failure = exit.Interrupted(errors.New("interrupted during the upload: nothing of it has run"))
	}
	if resumes {
		if exit.IsUsage(failure) {
			return failure
		}
		return fmt.Errorf("%w; the same command goes on from what the server has", failure)
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), local.DrainGrace)
	defer cancel()
	return errors.Join(failure, in.Abandon(ctx))
}

// remoteTaker is the jobTaker of a server.
type remoteTaker struct{ server server }

// Create implements jobTaker.
func (t *remoteTaker) Create(ctx context.Context, spec bulk.Spec) (bulk.Action, bool, error) {
	created, err := t.server.Create(ctx, client.NewAction(spec))
	if err != nil || spec.ID == "" {
		return bulk.Action{Spec: bulk.Spec{ID: created.ID}}, true, byFlags(err)
	}
	// An action with an explicit id may have jobs already.
	action, err := t.server.Action(ctx, created.ID)
	return client.LocalAction(&action), false, err
}

// Append implements jobTaker.
func (t *remoteTaker) Append(ctx context.Context, id string, offset int64, payloads [][]byte) (int64, error) {
	return t.server.UploadChunk(ctx, id, offset, payloads)
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

// remotePoll is how often the actions of a submission are polled.
const remotePoll = time.Second

// watchAll shows actions until all have finished.
func (r *session) watchAll(ctx context.Context, ids []string) error {
	if len(ids) == 1 {
		return r.watchOne(ctx, ids[0])
	}
	shown, tracked := term.DisplayOn(r.Err, 10, r.JSON), report.NewTracker(time.Now(), len(ids))
	actions, err := r.poll(ctx, ids, func(actions []bulk.Action) { shown.Show(tracked.Observe(time.Now(), actions)) })
	shown.Close()
	if exit.IsCanceled(err) {
		return exit.Interrupted(errors.New("no longer watched; the actions go on: sluice bulk list"))
	}
	if err != nil {
		return err
	}
	return r.ended(actions)
}

// poll reads the actions at intervals until all have finished.
func (r *session) poll(ctx context.Context, ids []string, see func([]bulk.Action)) ([]wire.Action, error) {
	actions, states := make([]wire.Action, len(ids)), make([]bulk.Action, len(ids))
	return actions, local.Poll(ctx, nil, remotePoll, func() (left int, err error) {
		for i, id := range ids {
			if actions[i].FinishedAt != nil {
				continue
			}
			if actions[i], err = r.server.Action(ctx, id); err != nil {
				return 0, err
			}
			if states[i] = client.LocalAction(&actions[i]); actions[i].FinishedAt == nil {
				left++
			}
		}
		see(states)
		return left, nil
	})
}

// ended writes the results of actions; the error names those that did not complete.
func (r *session) ended(actions []wire.Action) error {
	var failures []error
	for i := range actions {
		a := &actions[i]
		if err := ending(a); err != nil {
			failures = append(failures, err)
		}
		if r.JSON {
			if err := r.WriteJSON(a); err != nil {
				return err
			}
			continue
		}
		fmt.Fprintf(r.Out, "%s  %s: %s, %s\n", term.Printable(a.ID), term.Printable(a.Tenant), statusOf(a), jobCounts(a))
	}
	if len(failures) > 1 {
		return fmt.Errorf("%d of %d actions did not complete, the first: %w", len(failures), len(actions), failures[0])
	}
	return errors.Join(failures...)
}
