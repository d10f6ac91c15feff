package room

import (
	"context"
	"encoding/json"
	"maps"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

func newAlterCommand() *cobra.Command {
	var settings *config.RoomFlags
	command := onRooms(&cobra.Command{
		Use:   "alter NAME",
		Short: "Change some settings of a room, and keep the others",
		Long: `Change some settings of a room. Settings that are not given stay as they are, and so do
the visitors who wait or are inside.`,
		Example: `  sluice room alter shop --capacity 400
  sluice room alter shop --ends-at 2030-02-01T00:00:00Z --renewals 2`,
		Args: oneRoom,
	}, func(ctx context.Context, r *session, args []string) error {
		changes := settings.Object()
		if len(changes) == 0 {
			return exit.Usage("say what is to change, as in --capacity 400")
		}
		shown, err := r.Room(ctx, args[0])
		if err != nil {
			return err
		}
		var present struct {
			Settings map[string]any `json:"settings"`
		}
		if err := json.Unmarshal(shown.JSON, &present); err != nil {
			return err
		}
		maps.Copy(present.Settings, changes)
		altered, _, err := r.PutRoom(ctx, args[0], present.Settings)
		if err != nil {
			return err
		}
		return r.Tell(altered, "%s is changed: %s", term.Printable(altered.Name), letsIn(&altered))
	})
	settings = config.AddRoomFlags(command.Flags())
	return command
}
