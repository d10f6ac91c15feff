package data

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"sync/atomic"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/backup"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// standard is the name of standard input and output in place of a file.
const standard = "-"

// Backup returns the command sluice backup.
func Backup() *cobra.Command {
	var flags remote.Flags
	var to string
	command := &cobra.Command{
		Use:   "backup",
		Short: "Back up everything in a running server's data directory",
		Long: `Back up everything in the data directory of a running server, as of one moment: bulk
actions, rooms and topics. The backup has everything that was acknowledged before it began.

It is a tar that ends with the checksums of all its files, and is checked as it arrives.
The file has its name once it is whole. The server goes on serving; it needs no space for
the backup, but gives space back only after it. The backup is as secret as the data.`,
		Example: `  sluice backup --to monday.tar
  sluice backup --to - | zstd > monday.tar.zst
  sluice restore --from monday.tar --data restored`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			server, err := flags.Open(command)
			if err != nil {
				return err
			}
			if to == "" {
				return exit.Usage("--to: want a file, or - for standard output")
			}
			c := &copying{Output: term.OutputOf(command, flags.JSON), verb: "backed up", doing: "backing up"}
			if to == standard {
				c.Out = c.Err // standard output has the backup
				return c.fetch(command.Context(), server, "", command.OutOrStdout())
			}
			return c.fetchInto(command.Context(), server, to)
		},
	}
	command.Flags().StringVar(&to, "to", "", "`file` to write, or - for standard output")
	flags.Add(command)
	return command
}

// copying is one run of backup or restore.
type copying struct {
	term.Output
	verb, doing string
	described   atomic.Pointer[backup.Description]
	done        atomic.Int64
}

// copied is the result of the commands.
type copied struct {
	backup.Description
	Path      string `json:"path,omitempty"`
	ElapsedMS int64  `json:"elapsed_ms"`
}

// fetchInto writes a backup to a file, which has its name when the backup is whole and durable.
func (c *copying) fetchInto(ctx context.Context, server *remote.Client, path string) error {
	if _, err := os.Lstat(path); err == nil {
		return exit.Usage("--to: %s exists already: remove it, or choose another name", path)
	}
	partial := path + ".partial"
	file, err := os.OpenFile(partial, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	err = c.fetch(ctx, server, path, file)
	if err = errors.Join(err, file.Sync(), file.Close()); err != nil {
		return errors.Join(err, os.Remove(partial))
	}
	return os.Rename(partial, path)
}

// fetch copies a backup from a server, and checks it.
func (c *copying) fetch(ctx context.Context, server *remote.Client, path string, to io.Writer) error {
	response, err := server.Send(ctx, http.MethodPost, backup.Path, nil)
	if err != nil {
		return err
	}
	defer response.Body.Close() // it was only read
	if response.StatusCode != http.StatusOK {
		return server.Refusal(response, ", of a release that has backups")
	}
	return c.run(ctx, func() error {
		whole := io.TeeReader(response.Body, to)
		if err := backup.Read(whole, c.describe, c.skip); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, whole) // the end of the tar
		return err
	}, path)
}

func (c *copying) describe(d backup.Description) error {
	c.described.Store(&d)
	return nil
}

// skip reads a file of a backup.
func (c *copying) skip(_ string, _ int64, content io.Reader) error {
	_, err := io.Copy(counter{&c.done}, content)
	return err
}

// counter counts what is written to it.
type counter struct{ n *atomic.Int64 }

func (c counter) Write(b []byte) (int, error) {
	c.n.Add(int64(len(b)))
	return len(b), nil
}

// run copies with a display of the progress, and reports the result.
func (c *copying) run(ctx context.Context, work func() error, path string) error {
	began := time.Now()
	err := term.WhileShown(c.Err, work, c.line)
	switch {
	case err != nil && ctx.Err() != nil:
		return exit.Interrupted(err)
	case err != nil:
		return err
	}
	d := c.described.Load()
	for part, at := range d.Elsewhere {
		c.Say("%s is not in it: it is in %s", part, at)
	}
	elapsed := time.Since(began)
	return c.Tell(copied{*d, path, elapsed.Milliseconds()}, "%s %s in %d files, as of %s, in %s", c.verb,
		humanize.IBytes(uint64(d.Bytes)), d.Files, d.TakenAt.Local().Format(time.DateTime), term.Spell(elapsed))
}

func (c *copying) line(rate func(int64) float64) string {
	done, total := c.done.Load(), int64(0)
	if d := c.described.Load(); d != nil {
		total = d.Bytes
	}
	return fmt.Sprintf("%s · %s of %s · %s/s", c.doing, humanize.IBytes(uint64(done)), humanize.IBytes(uint64(total)), humanize.IBytes(uint64(max(rate(done), 0))))
}
