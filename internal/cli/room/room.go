package room

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/room/client"
)

// Command returns "sluice room" with its commands.
func Command() *cobra.Command {
	command := &cobra.Command{
		Use:   "room",
		Short: "Create, show and change waiting rooms",
		Long: `Create, show and change waiting rooms on a server ("sluice serve" or "sluice gate").

A room holds visitors in a fair line. As a bank teller, it admits the next visitor when
one leaves: at most --capacity are inside. As an amusement park, it admits --batch
visitors every --interval, each for --stay.`,
		Example: `  sluice room create shop --capacity 200 --pass-ttl 10m
  sluice room create fair --batch 500 --interval 1m --stay 15m
  sluice room show shop --watch`,
	}
	command.AddCommand(
		newCreateCommand(), newAlterCommand(), newListCommand(), newShowCommand(),
		newStateCommand("pause", "Admit no visitor until the room is resumed; visitors may still join the line", (*session).Pause),
		newStateCommand("sold-out", "Close the room until it is resumed, because there is nothing left: all who wait are told so", (*session).SoldOut),
		newStateCommand("resume", "Admit visitors again", (*session).Resume),
		newRevokeCommand(), newCodesCommand(), newDeleteCommand(), newLotteryCommand(), newKeysCommand(),
	)
	return command
}

// session is one run of a command on a server.
type session struct {
	*client.Client
	term.Output
}

// onRooms gives a command the flags of a server, and runs do with a client of it.
func onRooms(command *cobra.Command, do func(ctx context.Context, r *session, args []string) error) *cobra.Command {
	var f remote.Flags
	f.Add(command)
	command.RunE = func(command *cobra.Command, args []string) error {
		base, through, err := remote.Server(command)
		if err != nil {
			return err
		}
		patient, err := client.New(base, client.WithHTTPClient(through))
		if err != nil {
			return exit.Usage("--server: %w", err)
		}
		once, err := client.New(base, client.WithHTTPClient(through), client.WithAttempts(1))
		if err != nil {
			return exit.Usage("--server: %w", err)
		}
		// One attempt, so that a missing server is reported at once.
		if _, err := once.JWKS(command.Context()); remote.Unreachable(base, err) != nil {
			return remote.Unreachable(base, err)
		}
		err = do(command.Context(), &session{patient, term.OutputOf(command, f.JSON)}, args)
		return explain(cmp.Or(remote.Distrust(base, err), err))
	}
	return command
}

// explain turns a refusal of settings into a usage error, and says how to find the name of a room
// that does not exist.
func explain(err error) error {
	var refused *client.Error
	switch {
	case !errors.As(err, &refused):
		return err
	case refused.Status == http.StatusBadRequest || refused.Status == http.StatusUnprocessableEntity:
		return exit.Usage("%w", err)
	case refused.Code == "no_room":
		return fmt.Errorf(`%w; "sluice room list" shows the rooms`, err)
	}
	return err
}

// oneRoom is for commands that take the name of a room.
var oneRoom = exit.One(`give the name of one room; "sluice room list" shows them`)
