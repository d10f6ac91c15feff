package bulk

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/sync/errgroup"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/internal/cli/bulk/intake"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/input"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// enqueueFlags are those of "bulk enqueue".
type enqueueFlags struct {
	remote.Flags
	specFlags
	tenant, unique, runAt string
	uniqueFor             time.Duration
}

const enqueueLong = `Enqueue one job, which can start at once: no action needs to be created, and nothing
sealed. PAYLOAD is a JSON value. "-" reads jobs from standard input, one JSON value on
each line, until it ends; several are sent at a time, in no particular order. If a line
is wrong or a request fails, the command ends; jobs that were enqueued run.

Jobs that are alike share an action, a stream, for an hour (bulk.stream_window):
"sluice bulk list" shows it, and the other commands take its id.

With --unique, a job with the same key, tenant and type or URL is enqueued once, for as
long as the server keeps it, or once in each --unique-for.`

func newEnqueueCommand(connect connector) *cobra.Command {
	var f enqueueFlags
	command := &cobra.Command{
		Use:   "enqueue (PAYLOAD | -) --tenant TENANT (--url URL | --type TYPE)",
		Short: "Enqueue one job, or one for each line of standard input",
		Long:  enqueueLong,
		Example: `  sluice bulk enqueue '{"order":17}' --tenant acme --type echo
  sluice bulk enqueue '{"order":17}' --tenant acme --type echo --unique order-17 --unique-for 24h
  tail -f orders.ndjson | sluice bulk enqueue - --tenant acme --url https://api.example.com/orders`,
		Args: exit.One(`give the payload of one job, or "-" to read jobs from standard input`),
	}
	command.RunE = func(_ *cobra.Command, args []string) error {
		job, err := f.job(command)
		if err != nil {
			return err
		}
		if args[0] == "-" && f.unique != "" {
			return exit.Usage("--unique is the key of one job: give its payload as an argument")
		}
		if job.Payload = json.RawMessage(args[0]); args[0] != "-" && !json.Valid(job.Payload) {
			return exit.Usage("%.60q is not JSON: a text has quotes of its own, such as '\"text\"'", args[0])
		}
		return withServer(&f.Flags, connect, func(ctx context.Context, r *session, _ []string) error {
			if args[0] == "-" {
				return r.enqueueAll(ctx, job, command.InOrStdin())
			}
			return r.enqueueOne(ctx, job)
		})(command, args)
	}
	f.addJob(command)
	f.addServer(command)
	flags := command.Flags()
	flags.StringVar(&f.tenant, "tenant", "", "the `tenant` whose job it is; required")
	flags.StringVar(&f.unique, "unique", "", "enqueue no second job with this `key`, at most 256 bytes")
	flags.DurationVar(&f.uniqueFor, "unique-for", 0, "how long a key is unique, such as 24h (0: as long as the job is kept)")
	flags.StringVar(&f.runAt, "run-at", "", "the earliest `time` of the first attempt, such as 2025-11-28T08:00:00Z")
	f.Flags.Add(command)
	return command
}

// job returns the job that the flags describe, without its payload.
func (f *enqueueFlags) job(command *cobra.Command) (job wire.NewJob, err error) {
	spec, err := f.spec(command)
	switch {
	case f.tenant == "":
		return job, exit.Usage("say whose job it is: --tenant TENANT")
	case f.uniqueFor != 0 && f.unique == "":
		return job, exit.Usage("--unique-for is for a job with a key: give --unique too")
	case f.uniqueFor < 0 || f.uniqueFor%time.Millisecond != 0:
		return job, exit.Usage("--unique-for: %v: want whole milliseconds, such as 24h", f.uniqueFor)
	case err != nil:
		return job, err
	}
	job = wire.NewJob{
		Tenant: f.tenant, Type: spec.Type, Class: spec.Class.String(), Key: spec.Key, Cost: spec.Cost, MaxAttempts: spec.MaxAttempts,
		TimeoutMS: spec.Timeout.Milliseconds(), Unique: f.unique, UniqueForMS: f.uniqueFor.Milliseconds(),
		KeepResults: spec.KeepResults,
	}
	if spec.Target != nil {
		job.Target = &wire.Target{Name: spec.Target.Name, URL: spec.Target.URL}
	}
	if f.runAt != "" {
		at, err := time.Parse(time.RFC3339, f.runAt)
		if err != nil {
			return job, exit.Usage("--run-at: %q: want a time such as 2025-11-28T08:00:00Z", f.runAt)
		}
		job.RunAt = &at
	}
	return job, nil
}

func (r *session) enqueueOne(ctx context.Context, job wire.NewJob) error {
	enqueued, err := r.server.Enqueue(ctx, job)
	if err != nil {
		return byFlags(err)
	}
	note := ""
	if enqueued.Duplicate {
		note = "  (it was there: nothing was enqueued)"
	}
	return r.Tell(enqueued, "%s%s", term.Printable(enqueued.ID), note)
}

// enqueueSideBySide is how many jobs of standard input are sent at a time.
const enqueueSideBySide = 32

// lineProgress is standard input, whose size is not known.
type lineProgress struct{}

func (lineProgress) Progress() (read, size int64) { return 0, 0 }

// enqueueAll enqueues a job for each line.
func (r *session) enqueueAll(ctx context.Context, job wire.NewJob, lines io.Reader) error {
	shown := term.NewReading(r.Err, "enqueueing", "job", lineProgress{}, r.JSON)
	defer shown.Close()
	var count atomic.Int64
	group, sending := errgroup.WithContext(ctx)
	group.SetLimit(enqueueSideBySide)
	parser := intake.Lines(lines)
	var failure error
	for sending.Err() == nil {
		payload, err := parser.Next()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				failure = input.Located("-", err)
			}
			break
		}
		one := job
		one.Payload = bytes.Clone(payload)
		group.Go(func() error {
			_, err := r.server.Enqueue(sending, one)
			if err == nil {
				count.Add(1)
			}
			return err
		})
		shown.Show(count.Load())
	}
	if err := group.Wait(); err != nil { // it came first
		failure = byFlags(err)
	}
	shown.Close()
	total := struct {
		Enqueued int64 `json:"enqueued"`
	}{count.Load()}
	if err := r.Tell(total, "%s enqueued", term.Counted(total.Enqueued, "job")); err != nil {
		return err
	}
	if exit.IsCanceled(failure) {
		return exit.Interrupted(fmt.Errorf("interrupted after %s", term.Counted(total.Enqueued, "job")))
	}
	return failure
}
