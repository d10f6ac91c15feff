package bulk

import (
	"cmp"
	"context"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/internal/cli/bulk/intake"
	"github.com/sluice-project/sluice/internal/cli/bulk/local"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// Command returns "sluice bulk" with its commands.
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "bulk",
		Short: "Run bulk actions: here, or on a server",
		Long: `Run bulk actions: large sets of jobs of many tenants, scheduled so that no tenant can
starve another, within the rates of their targets, and counted exactly.

"sluice bulk run" needs no server: it runs a file in this process and prints the
result. "sluice bulk migrate" copies the data of a stopped server into Redis. The other
commands use a server ("sluice serve").`,
		Example: `  sluice bulk run examples/zipcodes.csv --tenant-column state --type echo
  sluice bulk submit examples/zipcodes.csv --tenant acme --type echo --watch`,
	}
	command.AddCommand(newRunCommand(local.Open, intake.OpenRows))
	command.AddCommand(newServerCommands(connectServer)...)
	command.AddCommand(newMigrateCommand())
	return command
}

// clientServer is the client of the HTTP API as the commands need it.
type clientServer struct {
	*client.Client
	// once makes one attempt and does not retry.
	once *client.Client
}

// connectServer returns a client of the server at a URL. It sends no request.
func connectServer(base string, through *http.Client) (server, error) {
	patient, err := client.New(base, client.WithHTTPClient(through))
	if err != nil {
		return nil, err
	}
	once, err := client.New(base, client.WithHTTPClient(through), client.WithAttempts(1))
	if err != nil {
		return nil, err
	}
	return &clientServer{patient, once}, nil
}

// Reach implements server.
func (s *clientServer) Reach(ctx context.Context) error {
	_, err := s.once.Limits(ctx)
	return err
}

// byFlags makes the refusal of an action or a schedule a usage error: its settings come from flags.
func byFlags(err error) error {
	if client.IsCode(err, wire.CodeInvalid) || client.IsCode(err, wire.CodeExists) {
		return exit.Usage("%w", err)
	}
	return err
}

// Replay implements server.
func (s *clientServer) Replay(ctx context.Context, replay wire.Replay) (wire.Action, error) {
	created, err := s.Client.Replay(ctx, replay)
	if err != nil {
		return wire.Action{}, err
	}
	action, err := s.Action(ctx, created.ID)
	if err != nil {
		return action, fmt.Errorf("action %s was created: %w", created.ID, err)
	}
	return action, nil
}

// server is the part of the HTTP API's client that the commands need.
type server interface {
	// Reach makes one small request; its error reports whether a server is there. The other methods
	// retry for a while when a connection fails.
	Reach(ctx context.Context) error
	Create(ctx context.Context, action wire.NewAction) (wire.Created, error)
	// UploadChunk uploads payloads; offset is how many were uploaded before.
	UploadChunk(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error)
	Seal(ctx context.Context, id string, total int64) (wire.Action, error)
	Enqueue(ctx context.Context, job wire.NewJob) (wire.Enqueued, error)
	Action(ctx context.Context, id string) (wire.Action, error)
	// Actions returns one page.
	Actions(ctx context.Context, filter client.ActionFilter) (wire.Actions, error)
	// Streams, Waits and Workers return one page too; Waits may be empty and have a next.
	Streams(ctx context.Context, filter client.ActionFilter) (wire.Actions, error)
	Waits(ctx context.Context, tenant, after string, limit int) (wire.WaitingActions, error)
	Workers(ctx context.Context, after string, limit int) (wire.Workers, error)
	// Watch calls see at every change until the action has finished.
	Watch(ctx context.Context, id string, see func(wire.Action) error) error
	Pause(ctx context.Context, id string) (wire.Action, error)
	Resume(ctx context.Context, id string) (wire.Action, error)
	Cancel(ctx context.Context, id string) (wire.Action, error)
	// Change changes some of the actions that match; Next of its answer says where to continue.
	Change(ctx context.Context, change wire.Change) (wire.Changed, error)
	// Job and FirstJob explain one job, and the first that has not ended.
	Job(ctx context.Context, id string, index int64) (wire.JobState, error)
	FirstJob(ctx context.Context, id string) (wire.JobState, error)
	// DeadLetters returns one page, which may be empty and have a next.
	DeadLetters(ctx context.Context, filter client.DeadLetterFilter) (wire.DeadLetters, error)
	Replay(ctx context.Context, replay wire.Replay) (wire.Action, error)
	Tenant(ctx context.Context, name string) (wire.Tenant, error)
	SetTenant(ctx context.Context, name string, tenant wire.Tenant) (wire.Tenant, error)
	Target(ctx context.Context, name string) (wire.TargetLimits, error)
	SetTarget(ctx context.Context, name string, limits wire.TargetLimits) (wire.TargetLimits, error)
	scheduleServer
}

// session is one run of a command on a server.
type session struct {
	term.Output
	server server
	base   string
}

// connector returns a client of the server at a URL, for requests through an HTTP client.
type connector func(base string, through *http.Client) (server, error)

// onServer gives a command the flags of a server, and runs do with a client of it.
func onServer(connect connector, command *cobra.Command, do func(ctx context.Context, r *session, args []string) error) *cobra.Command {
	var f remote.Flags
	f.Add(command)
	command.RunE = withServer(&f, connect, do)
	return command
}

// withServer runs do with a client of the server that the flags name.
func withServer(f *remote.Flags, connect connector, do func(ctx context.Context, r *session, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		base, through, err := remote.Server(command)
		if err != nil {
			return err
		}
		client, err := connect(base, through)
		if err != nil {
			return exit.Usage("--server: %w", err)
		}
		if err := remote.Unreachable(base, client.Reach(command.Context())); err != nil {
			return err
		}
		err = do(command.Context(), &session{term.OutputOf(command, f.JSON), client, base}, args)
		return cmp.Or(remote.Distrust(base, err), err)
	}
}

// newServerCommands returns the commands that ask a server.
func newServerCommands(connect connector) []*cobra.Command {
	return []*cobra.Command{
		newSubmitCommand(connect), newEnqueueCommand(connect), newListCommand(connect), newStatusCommand(connect), newWatchCommand(connect),
		newWhyCommand(connect), newStreamsCommand(connect), newWaitsCommand(connect), newWorkersCommand(connect),
		newTransitionCommand(connect, "pause", "Admit no further job of an action until it is resumed", server.Pause),
		newTransitionCommand(connect, "resume", "Go on with a paused action", server.Resume),
		newTransitionCommand(connect, "cancel", "Start no further job of an action, and tell those in flight to end", server.Cancel),
		newFailuresCommand(connect), newReplayCommand(connect), newTenantCommand(connect), newTargetCommand(connect), newScheduleCommand(connect),
	}
}

// oneID is for commands that take the id of an action.
var oneID = exit.One(`give the id of one action; "sluice bulk list" shows them`)
