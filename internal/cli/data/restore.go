package data

import (
	"context"
	"errors"
	"io"
	"os"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/backup"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// Restore returns the command sluice restore.
func Restore() *cobra.Command {
	var from, data string
	var asJSON bool
	command := &cobra.Command{
		Use:   "restore",
		Short: "Make a data directory from a backup",
		Long: `Make a data directory from a backup that "sluice backup" has made, on this machine or on
another. All files are checked; the directory has its name once everything is there, so
that an interrupted run leaves nothing that a server would open.

The server then has what it had when the backup was taken, as after a crash at that
moment: jobs that were in flight run again.`,
		Example: `  sluice restore --from monday.tar --data restored
  zstd -d < monday.tar.zst | sluice restore --from - --data restored`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if from == "" || data == "" {
				return exit.Usage("want --from with a backup, and --data with the directory to make")
			}
			c := &copying{Output: term.OutputOf(command, asJSON), verb: "restored", doing: "restoring"}
			if from == standard {
				return c.restore(command.Context(), command.InOrStdin(), data)
			}
			file, err := os.Open(from)
			if err != nil {
				return err
			}
			return errors.Join(c.restore(command.Context(), file, data), file.Close())
		},
	}
	command.Flags().StringVar(&from, "from", "", "`file` with a backup, or - for standard input")
	command.Flags().StringVar(&data, "data", "", "data `directory` to make; it may exist if it is empty")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

func (c *copying) restore(ctx context.Context, from io.Reader, data string) error {
	return c.run(ctx, func() error {
		return backup.Restore(ctx, io.TeeReader(from, counter{&c.done}), data, c.describe)
	}, data)
}
