package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/room/client"
)

// roomRemote is one run of a command that speaks with a server about rooms.
type roomRemote struct {
	*client.Client
	json     bool
	out, err screen
}

// withRooms runs what a command does on its server.
func (f *remoteFlags) withRooms(do func(ctx context.Context, r *roomRemote, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		base, err := f.base()
		if err != nil {
			return err
		}
		patient, err := client.New(base)
		if err != nil {
			return wrongUsage("--server: %w", err)
		}
		once, err := client.New(base, client.WithAttempts(1))
		if err != nil {
			return wrongUsage("--server: %w", err)
		}
		// Asked for once, so that a server that is not there is told at once.
		if _, err := once.JWKS(command.Context()); unreachable(base, err) != nil {
			return unreachable(base, err)
		}
		r := &roomRemote{
			Client: patient, json: f.json,
			out: screenOf(command.OutOrStdout()), err: screenOf(command.ErrOrStderr()),
		}
		return explainRoom(do(command.Context(), r, args))
	}
}

// explainRoom makes a usage error of settings that the server refuses, and says how
// to find the name of a room that is not there.
func explainRoom(err error) error {
	var refused *client.Error
	switch {
	case !errors.As(err, &refused):
		return err
	case refused.Status == http.StatusBadRequest || refused.Status == http.StatusUnprocessableEntity:
		return wrongUsage("%w", err)
	case refused.Code == "no_room":
		return fmt.Errorf(`%w; "sluice room list" shows the rooms`, err)
	}
	return err
}

// oneRoom is for commands that take the name of a room.
func oneRoom(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return wrongUsage(`give the name of one room; "sluice room list" shows them`)
	}
	return nil
}

func (r *roomRemote) writeJSON(value any) error { return json.NewEncoder(r.out).Encode(value) }

// say tells people something; with --json there are none.
func (r *roomRemote) say(format string, args ...any) {
	if !r.json {
		fmt.Fprintf(r.err, format+"\n", args...)
	}
}

// tell writes what came of a command: a sentence, or with --json an object.
func (r *roomRemote) tell(object any, format string, args ...any) error {
	if r.json {
		return r.writeJSON(object)
	}
	fmt.Fprintf(r.out, format+"\n", args...)
	return nil
}
