package room

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/room/client"
)

func newKeysCommand() *cobra.Command {
	var revoke bool
	command := onRooms(&cobra.Command{
		Use:   "rotate-keys",
		Short: "Sign tickets and passes with a new key from now on",
		Long: `Sign tickets and passes of all rooms with a new key from now on. Nobody loses their
place: signatures of the older keys on the ring stay valid.

With --revoke-old they do not, for keys that may have been stolen: who waits has to queue
again, except for visitors that a program entered with a key of its own, and passes are
refused. Services that check passes themselves must fetch the public keys again.`,
		Example: `  sluice room rotate-keys
  sluice room rotate-keys --revoke-old`,
		Args: cobra.NoArgs,
	}, func(ctx context.Context, r *session, _ []string) error {
		if revoke {
			if err := r.RevokeKeys(ctx); err != nil {
				return err
			}
			return r.Tell(map[string]any{"rotated": true, "revoked": true}, "tickets and passes are signed with a new key, and those of older keys are not valid")
		}
		if err := r.RotateKeys(ctx); err != nil {
			return err
		}
		return r.Tell(map[string]any{"rotated": true}, "tickets and passes are signed with a new key")
	})
	command.Flags().BoolVar(&revoke, "revoke-old", false, "drop the older keys: what they signed is not valid any more")
	return command
}

// newStateCommand returns pause, sold-out or resume.
func newStateCommand(name, short string, move func(*session, context.Context, string) (client.Room, error)) *cobra.Command {
	return onRooms(&cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Example: fmt.Sprintf("  sluice room %s shop", name),
		Args:    oneRoom,
	}, func(ctx context.Context, r *session, args []string) error {
		of, err := move(r, ctx, args[0])
		if err != nil {
			return err
		}
		return r.Tell(of, "%s is %s: %s waiting, %s inside", term.Printable(of.Name), of.State,
			humanize.Comma(of.Waiting), humanize.Comma(of.Inside))
	})
}

func newRevokeCommand() *cobra.Command {
	var visitor, ticket string
	command := onRooms(&cobra.Command{
		Use:   "revoke NAME [--visitor KEY | --ticket TICKET]",
		Short: "Revoke the passes of all visitors inside, or the place of one visitor",
		Long: `Revoke the passes of all visitors inside: they are void at once, and the next visitors
are admitted. With --visitor or --ticket, revoke the place of one visitor, waiting or
inside.

A server that verifies passes with the public keys alone may accept a revoked pass for
up to a minute.`,
		Example: `  sluice room revoke shop
  sluice room revoke shop --visitor alice@example.com`,
		Args: oneRoom,
	}, func(ctx context.Context, r *session, args []string) error {
		name, whose := args[0], "all passes are"
		var err error
		switch {
		case visitor != "" && ticket != "":
			return exit.Usage("give --visitor or --ticket, not both")
		case visitor != "":
			whose = "the place of " + term.Printable(visitor) + " is"
			err = r.RevokeVisitor(ctx, name, visitor)
		case ticket != "":
			whose = "the place of the ticket is"
			err = r.RevokeTicket(ctx, name, ticket)
		default:
			err = r.RevokeAll(ctx, name)
		}
		if err != nil {
			return err
		}
		return r.Tell(map[string]any{"room": name, "revoked": true}, "%s: %s revoked", term.Printable(name), whose)
	})
	command.Flags().StringVar(&visitor, "visitor", "", "only the visitor who entered with this `key`")
	command.Flags().StringVar(&ticket, "ticket", "", "only the visitor who has this `ticket`")
	return command
}

func newDeleteCommand() *cobra.Command {
	return onRooms(&cobra.Command{
		Use:     "delete NAME",
		Short:   "Remove a room with everybody in it",
		Long:    `Remove a room with everybody in it. Tickets and passes are void, also if a room of that name is made again.`,
		Example: `  sluice room delete shop`,
		Args:    oneRoom,
	}, func(ctx context.Context, r *session, args []string) error {
		if err := r.DeleteRoom(ctx, args[0]); err != nil {
			return err
		}
		return r.Tell(map[string]any{"room": args[0], "deleted": true}, "%s is deleted", term.Printable(args[0]))
	})
}
