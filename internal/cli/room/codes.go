package room

import (
	"context"
	"fmt"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
)

func newCodesCommand() *cobra.Command {
	var lane, until string
	var count int
	var void bool
	command := onRooms(&cobra.Command{
		Use:   "codes NAME (--count NUMBER --until TIME [--lane LANE] | --void)",
		Short: "Make codes with which visitors enter in a lane, or a room by invitation",
		Long: `Make codes, and print one a line. Whoever enters with a code, on the waiting page or by a
link with ?sluice_code=CODE, waits in its lane; a room by invitation lets codes in. A code
has one place at a time. The room needs the setting codes.

Codes are not stored: keep what is printed. With --void, all codes that were made so far
are void; places that visitors have by them stay.`,
		Example: `  sluice room codes shop --lane vip --count 1000 --until 2030-12-24T20:00:00+01:00 > vip.txt
  sluice room codes shop --void`,
		Args: oneRoom,
	}, func(ctx context.Context, r *session, args []string) error {
		name := args[0]
		if void {
			if count != 0 || until != "" || lane != "" {
				return exit.Usage("--void stands alone")
			}
			if err := r.RevokeCodes(ctx, name); err != nil {
				return err
			}
			return r.Tell(map[string]any{"room": name, "void": true}, "all codes of %s that were made so far are void", name)
		}
		end, err := time.Parse(time.RFC3339, until)
		if err != nil {
			return exit.Usage("--until: %q: want a time, such as 2030-12-24T20:00:00+01:00", until)
		}
		codes, err := r.MakeCodes(ctx, name, lane, count, end)
		if err != nil {
			return err
		}
		if r.JSON {
			return r.WriteJSON(map[string]any{"room": name, "lane": lane, "until": end, "codes": codes})
		}
		for _, code := range codes {
			if _, err := fmt.Fprintln(r.Out, code); err != nil {
				return err
			}
		}
		return nil
	})
	command.Flags().IntVar(&count, "count", 0, "how many codes, 1 to 10,000")
	command.Flags().StringVar(&lane, "lane", "", "`lane` of their visitors (default: the last)")
	command.Flags().StringVar(&until, "until", "", "`time` at which they end, in RFC 3339")
	command.Flags().BoolVar(&void, "void", false, "make all codes void that were made so far")
	return command
}
