package bulk

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/api/wire"
	"github.com/sluice-project/sluice/bulk/client"
	"github.com/sluice-project/sluice/internal/cli/bulk/report"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

func newWatchCommand(connect connector) *cobra.Command {
	return onServer(connect, &cobra.Command{
		Use:   "watch ID",
		Short: "Show the progress of an action until it has finished",
		Long: `Show the progress of an action until it has finished, and then its result. Ctrl-C ends
the command, not the action.

The exit code is 0 if the action COMPLETED, 1 if it FAILED or was CANCELED. With
--json every change is a line, the object of "sluice bulk status --json".`,
		Example: `  sluice bulk watch zips
  sluice bulk watch zips --json | jq .succeeded`,
		Args: oneID,
	}, func(ctx context.Context, r *session, args []string) error { return r.watchOne(ctx, args[0]) })
}

// watchOne shows an action until it has finished, and then its result.
func (r *session) watchOne(ctx context.Context, id string) error {
	action, err := r.watch(ctx, id)
	if err == nil && !r.JSON {
		err = r.show(&action)
	}
	if err != nil {
		return err
	}
	return ending(&action)
}

// watch shows an action until it has finished, and returns its last state.
func (r *session) watch(ctx context.Context, id string) (last wire.Action, err error) {
	var tracked *report.Tracker
	shown := term.DisplayOn(r.Err, 0, r.JSON)
	err = r.server.Watch(ctx, id, func(a wire.Action) error {
		last = a
		if r.JSON {
			return r.WriteJSON(&a)
		}
		if tracked == nil {
			tracked = report.NewTracker(time.Now(), 1)
		}
		shown.Show(tracked.Observe(time.Now(), []bulk.Action{client.LocalAction(&a)}))
		return nil
	})
	shown.Close()
	if exit.IsCanceled(err) {
		return last, exit.Interrupted(fmt.Errorf("no longer watched; the action goes on: sluice bulk watch %s", id))
	}
	return last, err
}

// ending returns an error if an action did not complete.
func ending(a *wire.Action) error {
	switch {
	case a.Status == wire.StatusCompleted:
		return nil
	case a.Error != "":
		return fmt.Errorf("action %s is %s: %s", a.ID, a.Status, term.Printable(a.Error))
	}
	return fmt.Errorf("action %s is %s", a.ID, a.Status)
}
