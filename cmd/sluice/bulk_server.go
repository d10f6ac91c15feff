package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk/api/wire"
)

// server is what the commands need of a client of the HTTP API.
type server interface {
	// Reach asks for something small, once: its error tells whether a server is
	// there. The other methods try again for a while when a connection fails.
	Reach(ctx context.Context) error
	Create(ctx context.Context, action wire.NewAction) (wire.Created, error)
	// Append uploads payloads, after offset others.
	Append(ctx context.Context, id string, offset int64, payloads [][]byte) (received int64, err error)
	Seal(ctx context.Context, id string, total int64) (wire.Action, error)
	Action(ctx context.Context, id string) (wire.Action, error)
	// Actions returns one page; empty strings do not filter.
	Actions(ctx context.Context, tenant, status, after string, limit int) (wire.Actions, error)
	// Watch calls see with every change until the action has finished.
	Watch(ctx context.Context, id string, see func(wire.Action) error) error
	Pause(ctx context.Context, id string) (wire.Action, error)
	Resume(ctx context.Context, id string) (wire.Action, error)
	Cancel(ctx context.Context, id string) (wire.Action, error)
	// Failures returns one page, from an index on.
	Failures(ctx context.Context, id string, from int64, limit int) (wire.Failures, error)
	Replay(ctx context.Context, id string) (wire.Action, error)
	Target(ctx context.Context, name string) (wire.TargetLimits, error)
	SetTarget(ctx context.Context, name string, limits wire.TargetLimits) (wire.TargetLimits, error)
	scheduleServer
}

const (
	defaultServer  = "http://127.0.0.1:8080"
	serverVariable = "SLUICE_SERVER"
)

// remote is one run of a command that speaks with a server.
type remote struct {
	server   server
	base     string
	json     bool
	out, err screen
}

// connector returns a client of the server at a URL.
type connector func(base string) (server, error)

// remoteFlags are those of every command that speaks with a server.
type remoteFlags struct {
	server string
	json   bool
}

func (f *remoteFlags) add(command *cobra.Command) {
	command.Flags().StringVar(&f.server, "server", "", "`URL` of the server (default $"+serverVariable+", or "+defaultServer+")")
	command.Flags().BoolVar(&f.json, "json", false, "print JSON")
}

// base is the URL of the server.
func (f *remoteFlags) base() (string, error) {
	base := cmp.Or(f.server, os.Getenv(serverVariable), defaultServer)
	u, err := url.Parse(base)
	if err != nil || u.Host == "" || !slices.Contains([]string{"http", "https"}, u.Scheme) {
		return "", wrongUsage("--server: %q: want a URL, such as %s", base, defaultServer)
	}
	return base, nil
}

// with runs what a command does on its server.
func (f *remoteFlags) with(connect connector, do func(ctx context.Context, r *remote, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		base, err := f.base()
		if err != nil {
			return err
		}
		client, err := connect(base)
		if err != nil {
			return wrongUsage("--server: %w", err)
		}
		r := &remote{
			server: client, base: base, json: f.json,
			out: screenOf(command.OutOrStdout()), err: screenOf(command.ErrOrStderr()),
		}
		if err := unreachable(base, client.Reach(command.Context())); err != nil {
			return err
		}
		return do(command.Context(), r, args)
	}
}

// unreachableError says that no server answered, and how to start one.
type unreachableError struct {
	base string
	err  error
}

func (e *unreachableError) Error() string {
	return fmt.Sprintf("no server at %s (%v): start one with \"sluice serve\", or name another with --server", e.base, e.err)
}

func (e *unreachableError) Unwrap() error { return e.err }

// unreachable tells what to do if nothing answers at all; nil if anything does.
func unreachable(base string, err error) error {
	var dial *net.OpError
	var name *net.DNSError
	switch {
	case errors.As(err, &name):
		return &unreachableError{base, name}
	case errors.As(err, &dial) && dial.Op == "dial":
		return &unreachableError{base, innermost(dial.Err)}
	}
	return nil
}

// innermost is the reason at the end of a chain of errors.
func innermost(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// writeJSON writes one object on one line.
func (r *remote) writeJSON(value any) error { return json.NewEncoder(r.out).Encode(value) }

// say tells people something; with --json there are none.
func (r *remote) say(format string, args ...any) {
	if !r.json {
		fmt.Fprintf(r.err, format+"\n", args...)
	}
}

// newServerCommands returns the commands that speak with a server.
func newServerCommands(connect connector) []*cobra.Command {
	return []*cobra.Command{
		newSubmitCommand(connect), newListCommand(connect), newStatusCommand(connect), newWatchCommand(connect),
		newMoveCommand(connect, "pause", "Admit no further job of an action until it is resumed", server.Pause),
		newMoveCommand(connect, "resume", "Go on with a paused action", server.Resume),
		newMoveCommand(connect, "cancel", "Start no further job of an action; those in flight may finish", server.Cancel),
		newFailuresCommand(connect), newReplayCommand(connect), newTargetCommand(connect), newScheduleCommand(connect),
	}
}

// oneID is for commands that take the id of an action.
func oneID(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return wrongUsage(`give the id of one action; "sluice bulk list" shows them`)
	}
	return nil
}

// ago spells how long ago something was.
func ago(now, then time.Time) string { return spell(max(now.Sub(then), 0)) + " ago" }
