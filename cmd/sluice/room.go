package main

import "github.com/spf13/cobra"

// newRoomCommand returns "sluice room" with its commands.
func newRoomCommand() *cobra.Command {
	command := &cobra.Command{
		Use:   "room",
		Short: "Make waiting rooms, look at them, and change them",
		Long: `Make waiting rooms, look at them, and change them, on a server ("sluice serve" or
"sluice gate").

A room holds people in a fair line. As a bank teller, it lets in the next when one
leaves: at most --capacity are inside. As an amusement park, it lets in --batch
people every --interval, each for --stay.`,
		Example: `  sluice room create shop --capacity 200 --pass-ttl 10m
  sluice room create fair --batch 500 --interval 1m --stay 15m
  sluice room show shop --watch`,
	}
	command.AddCommand(
		newRoomCreateCommand(), newRoomListCommand(), newRoomShowCommand(),
		newRoomMoveCommand("pause", "Let nobody in until the room is resumed; one may still come and wait", (*roomRemote).pause),
		newRoomMoveCommand("resume", "Let people in again", (*roomRemote).resume),
		newRoomRevokeCommand(), newRoomDeleteCommand(), newRoomLotteryCommand(), newRoomKeysCommand(),
	)
	return command
}
