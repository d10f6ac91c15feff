package main

import (
	"context"
	"fmt"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/room/client"
)

func (r *roomRemote) pause(ctx context.Context, name string) (client.Room, error) {
	return r.Pause(ctx, name)
}

func (r *roomRemote) resume(ctx context.Context, name string) (client.Room, error) {
	return r.Resume(ctx, name)
}

// newRoomMoveCommand returns pause or resume.
func newRoomMoveCommand(name, short string, move func(*roomRemote, context.Context, string) (client.Room, error)) *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:     name + " NAME",
		Short:   short,
		Example: fmt.Sprintf("  sluice room %s shop", name),
		Args:    oneRoom,
		RunE: f.withRooms(func(ctx context.Context, r *roomRemote, args []string) error {
			of, err := move(r, ctx, args[0])
			if err != nil {
				return err
			}
			return r.tell(of, "%s is %s: %s waiting, %s inside", printable(of.Name), of.State,
				humanize.Comma(of.Waiting), humanize.Comma(of.Inside))
		}),
	}
	f.add(command)
	return command
}

func newRoomRevokeCommand() *cobra.Command {
	var f remoteFlags
	var visitor, ticket string
	command := &cobra.Command{
		Use:   "revoke NAME [--visitor KEY | --ticket TICKET]",
		Short: "Take the passes of all who are inside, or the place of one visitor",
		Long: `Take the passes of all who are inside: they are void at once, and the next are let
in. With --visitor or --ticket, take the place of that visitor, waiting or inside.

Who checks passes with the public keys alone, and does not ask, believes one for up
to a minute more.`,
		Example: `  sluice room revoke shop
  sluice room revoke shop --visitor alice@example.com`,
		Args: oneRoom,
		RunE: f.withRooms(func(ctx context.Context, r *roomRemote, args []string) error {
			name, whose := args[0], "all passes are"
			var err error
			switch {
			case visitor != "" && ticket != "":
				return wrongUsage("give --visitor or --ticket, not both")
			case visitor != "":
				whose = "the place of " + printable(visitor) + " is"
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
			return r.tell(map[string]any{"room": name, "revoked": true}, "%s: %s revoked", printable(name), whose)
		}),
	}
	f.add(command)
	command.Flags().StringVar(&visitor, "visitor", "", "only the visitor who entered with this `key`")
	command.Flags().StringVar(&ticket, "ticket", "", "only the visitor who has this `ticket`")
	return command
}

func newRoomDeleteCommand() *cobra.Command {
	var f remoteFlags
	command := &cobra.Command{
		Use:     "delete NAME",
		Short:   "Remove a room with everybody in it",
		Long:    `Remove a room with everybody in it. Tickets and passes are void, also if a room of that name is made again.`,
		Example: `  sluice room delete shop`,
		Args:    oneRoom,
		RunE: f.withRooms(func(ctx context.Context, r *roomRemote, args []string) error {
			if err := r.DeleteRoom(ctx, args[0]); err != nil {
				return err
			}
			return r.tell(map[string]any{"room": args[0], "deleted": true}, "%s is deleted", printable(args[0]))
		}),
	}
	f.add(command)
	return command
}
