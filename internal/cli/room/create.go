package room

import (
	"context"
	"encoding/json"
	"maps"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/input"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// maxRoomFile bounds a file of settings.
const maxRoomFile = 256 << 10

func newCreateCommand() *cobra.Command {
	var file string
	var settings *config.RoomFlags
	command := onRooms(&cobra.Command{
		Use:   "create NAME (--capacity NUMBER | --batch NUMBER --interval DURATION --stay DURATION | --file FILE)",
		Short: "Create a room, or replace the settings of one",
		Long: `Create a room, or replace all settings of an existing one: settings that are not given
get their defaults. Visitors who wait or are inside keep their places.

--file reads the object that the HTTP API takes, from a file or, as "-", from
standard input; flags override what it has.`,
		Example: `  sluice room create shop --capacity 200
  sluice room create shop --capacity 200 --pass-ttl 10m --pass fixed --route '/checkout/*'
  sluice room create fair --batch 500 --interval 1m --stay 15m
  sluice room create sale --capacity 50 --method lottery --opens-at 2030-01-31T09:00:00+09:00
  sluice room create drop --capacity 50 --repeats '0 10 * * SAT' --time-zone Asia/Seoul --lasts 2h --prequeue 30m
  sluice room create shop --file room.json`,
		Args: oneRoom,
	}, func(ctx context.Context, r *session, args []string) error {
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
		return r.Tell(made, "%s is %s: %s", term.Printable(made.Name), what, letsIn(&made))
	})
	command.Flags().StringVar(&file, "file", "", "read the settings from this JSON `file` (-: standard input)")
	settings = config.AddRoomFlags(command.Flags())
	return command
}

// roomObject returns the object of a file, if there is one, overridden by the flags.
func roomObject(file string, flags map[string]any) (map[string]any, error) {
	object := map[string]any{}
	if file != "" {
		text, err := input.ReadAll(file, os.Stdin, maxRoomFile)
		if err != nil {
			return nil, exit.Usage("--file: %w", err)
		}
		if err := json.Unmarshal(text, &object); err != nil {
			return nil, exit.Usage("--file: %s: want a JSON object of settings: %w", file, err)
		}
	}
	maps.Copy(object, flags)
	if len(object) == 0 {
		return nil, exit.Usage("say how people are let in: --capacity NUMBER, or --batch NUMBER --interval DURATION --stay DURATION, or --file FILE")
	}
	return object, nil
}
