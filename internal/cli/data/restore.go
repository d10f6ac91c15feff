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
	var from []string
	var data string
	var asJSON bool
	command := &cobra.Command{
		Use:   "restore",
		Short: "Make a data directory from a backup",
		Long: `Make a data directory from a backup that "sluice backup" has made, on this machine or on
another. All files are checked; the directory has its name once everything is there, so
that an interrupted run leaves nothing that a server would open.

An incremental backup needs its base, and that its own: name the full one first, and the
others in the order in which they were taken.

The server then has what it had when the backup was taken, as after a crash at that
moment: jobs that were in flight run again.`,
		Example: `  sluice restore --from monday.tar --data restored
  sluice restore --from monday.tar --from tuesday.tar --data restored
  zstd -d < monday.tar.zst | sluice restore --from - --data restored`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if len(from) == 0 || data == "" {
				return exit.Usage("want --from with a backup, and --data with the directory to make")
			}
			c := &copying{Output: term.OutputOf(command, asJSON), verb: "restored", doing: "restoring"}
			return c.restore(command.Context(), from, command.InOrStdin(), data)
		},
	}
	command.Flags().StringArrayVar(&from, "from", nil, "`file` with a backup, or - for standard input; once for each, each after its base")
	command.Flags().StringVar(&data, "data", "", "data `directory` to make; it may exist if it is empty")
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON")
	return command
}

// restore makes a data directory from backups.
func (c *copying) restore(ctx context.Context, from []string, input io.Reader, data string) (err error) {
	var backups []backup.Archive
	for _, path := range from {
		a := backup.Archive{Name: path}
		if path == standard {
			a.Name, a.From = "standard input", io.TeeReader(input, counter{&c.done})
		} else {
			file, err := os.Open(path)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, file.Close()) }()
			a.From = io.TeeReader(file, counter{&c.done})
		}
		backups = append(backups, a)
	}
	return c.run(ctx, func() error { return backup.Restore(ctx, data, c.describe, backups...) }, data)
}
