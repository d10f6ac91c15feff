package main

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
)

func newWatchCommand(connect connector) *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:   "watch ID",
		Short: "Show how an action goes on until it has finished",
		Long: `Show how an action goes on until it has finished, and then its result. Ctrl-C ends
the watching, not the action.

The exit code is 0 if the action COMPLETED, 1 if it FAILED or was CANCELED. With
--json every change is a line, the object of "sluice bulk status --json".`,
		Example: `  sluice bulk watch zips
  sluice bulk watch zips --json | jq .succeeded`,
		Args: oneID,
		RunE: f.with(connect, func(ctx context.Context, r *remote, args []string) error {
			action, err := r.watch(ctx, args[0])
			if err != nil {
				return err
			}
			if !r.json {
				if err := r.show(&action); err != nil {
					return err
				}
			}
			return ending(&action)
		}),
	}
	f.add(command)
	return command
}

// watch shows an action until it has finished, and returns its last state.
func (r *remote) watch(ctx context.Context, id string) (last wire.Action, err error) {
	var tracked *tracker
	var shown display = silent{}
	if !r.json {
		shown = displayOn(r.err, 0)
	}
	var m *moment
	err = r.server.Watch(ctx, id, func(a wire.Action) error {
		last = a
		if r.json {
			return r.writeJSON(&a)
		}
		if tracked == nil {
			tracked = newTracker(time.Now(), 1)
		}
		local := client.LocalAction(&a)
		m = tracked.Observe(time.Now(), []bulk.Action{local})
		shown.Show(m)
		return nil
	})
	if m != nil {
		shown.Close(m)
	}
	if interrupted(err) {
		return last, &interruptedError{fmt.Errorf("no longer watched; the action goes on: sluice bulk watch %s", id)}
	}
	return last, err
}

// ending is an error if an action did not complete.
func ending(a *wire.Action) error {
	switch {
	case a.Status == wire.StatusCompleted:
		return nil
	case a.Error != "":
		return fmt.Errorf("action %s is %s: %s", a.ID, a.Status, printable(a.Error))
	}
	return fmt.Errorf("action %s is %s", a.ID, a.Status)
}
