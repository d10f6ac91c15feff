package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/config"
)

// maxRoomFile is the largest file of settings that is read.
const maxRoomFile = 256 << 10

func newRoomCreateCommand() *cobra.Command {
	var f remoteFlags
	var file string
	var settings *config.RoomFlags
	command := &cobra.Command{
		Use:   "create NAME (--capacity NUMBER | --batch NUMBER --interval DURATION --stay DURATION | --file FILE)",
		Short: "Make a room, or replace the settings of one",
		Long: `Make a room, or replace all settings of one that exists: those that are not given
have their defaults. Who waits or is inside stays where they are.

--file reads the object that the HTTP API takes, from a file or, as "-", from
standard input; flags override what it has.`,
		Example: `  sluice room create shop --capacity 200
  sluice room create shop --capacity 200 --pass-ttl 10m --pass fixed --route '/checkout/*'
  sluice room create fair --batch 500 --interval 1m --stay 15m
  sluice room create sale --capacity 50 --method lottery --opens-at 2030-01-31T09:00:00+09:00
  sluice room create shop --file room.json`,
		Args: oneRoom,
		RunE: f.withRooms(func(ctx context.Context, r *roomRemote, args []string) error {
			object, err := roomObject(file, settings.Object())
			if err != nil {
				return err
			}
			made, created, err := r.PutRoom(ctx, args[0], object)
			if err != nil {
				return err
			}
			what := "changed"
			if created {
				what = "made"
			}
			return r.tell(made, "%s is %s: %s", printable(made.Name), what, letsIn(&made))
		}),
	}
	f.add(command)
	command.Flags().StringVar(&file, "file", "", "read the settings from this JSON `file` (-: standard input)")
	settings = config.AddRoomFlags(command.Flags())
	return command
}

// roomObject is the object of a file, if there is one, with what flags override.
func roomObject(file string, flags map[string]any) (map[string]any, error) {
	object := map[string]any{}
	if file != "" {
		text, err := readRoomFile(file)
		if err != nil {
			return nil, wrongUsage("--file: %w", err)
		}
		if err := json.Unmarshal(text, &object); err != nil {
			return nil, wrongUsage("--file: %s: want a JSON object of settings: %w", file, err)
		}
	}
	for name, value := range flags {
		object[name] = value
	}
	if len(object) == 0 {
		return nil, wrongUsage("say how people are let in: --capacity NUMBER, or --batch NUMBER --interval DURATION --stay DURATION, or --file FILE")
	}
	return object, nil
}

func readRoomFile(name string) ([]byte, error) {
	file := os.Stdin
	if name != "-" {
		opened, err := os.Open(name)
		if err != nil {
			return nil, err
		}
		defer func() { _ = opened.Close() }() // it was only read
		file = opened
	}
	text, err := io.ReadAll(io.LimitReader(file, maxRoomFile+1))
	if err == nil && len(text) > maxRoomFile {
		err = fmt.Errorf("%s: larger than %d bytes", name, maxRoomFile)
	}
	return text, err
}
