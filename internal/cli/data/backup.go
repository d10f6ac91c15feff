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
	var to, base string
	command := &cobra.Command{
		Use:   "backup",
		Short: "Back up everything in a running server's data directory",
		Long: `Back up everything in the data directory of a running server, as of one moment: bulk
actions, rooms and topics. The backup has everything that was acknowledged before it began.

It is a tar that ends with the checksums of all its files, and is checked as it arrives.
The file has its name once it is whole. The server goes on serving; it needs no space for
the backup, but gives space back only after it. The backup is as secret as the data.

With --base the backup is incremental: it has what is not in that earlier one, which may be
incremental itself. The server reads all of its files to find that out.`,
		Example: `  sluice backup --to monday.tar
  sluice backup --to - | zstd > monday.tar.zst
  sluice backup --base monday.tar --to tuesday.tar
  sluice restore --from monday.tar --from tuesday.tar --data restored`,
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
			if base != "" {
				if c.base, err = readBase(base, command.InOrStdin()); err != nil {
					return err
				}
			}
			if to == standard {
				c.Out = c.Err // standard output has the backup
				return c.fetch(command.Context(), server, "", command.OutOrStdout())
			}
			return c.fetchInto(command.Context(), server, to)
		},
	}
	command.Flags().StringVar(&to, "to", "", "`file` to write, or - for standard output")
	command.Flags().StringVar(&base, "base", "", "earlier backup, in a `file` or - for standard input: what it has is left out")
	flags.Add(command)
	return command
}

// readBase returns what an earlier backup has.
func readBase(path string, input io.Reader) (*backup.Inventory, error) {
	describe := func(backup.Description) error { return nil }
	if path == standard {
		return backup.Read(input, describe, nil)
	}
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	has, err := backup.Read(file, describe, nil)
	if err = errors.Join(err, file.Close()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return has, nil
}

// copying is one run of backup or restore.
type copying struct {
	term.Output
	verb, doing string
	base        *backup.Inventory // what a backup is to continue; nil: nothing
	described   atomic.Pointer[backup.Description]
	done, fresh atomic.Int64 // bytes, and those that the base does not have
}

// copied is the result of the commands.
type copied struct {
	backup.Description
	Path string `json:"path,omitempty"`
	// NewBytes is how much of an incremental backup the base does not have.
	NewBytes  *int64 `json:"new_bytes,omitempty"`
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
	var asked any
	if c.base != nil {
		asked = backup.Continuation{Base: c.base}
	}
	response, err := server.Send(ctx, http.MethodPost, backup.Path, asked)
	if err != nil {
		return err
	}
	defer response.Body.Close() // it was only read
	if response.StatusCode != http.StatusOK {
		return server.Refusal(response, ", of a release that has backups")
	}
	return c.run(ctx, func() error {
		whole := io.TeeReader(response.Body, to)
		if _, err := backup.Read(whole, c.describe, c.skip); err != nil {
			return err
		}
		_, err := io.Copy(io.Discard, whole) // the end of the tar
		return err
	}, path)
}

func (c *copying) describe(d backup.Description) error {
	if c.base != nil && d.Base == nil {
		return errors.New("the server sends a full backup: it is of a release without incremental ones, so leave out --base")
	}
	c.described.Store(&d)
	c.done.Store(0)
	return nil
}

// skip reads a file of a backup.
func (c *copying) skip(of backup.Entry, content io.Reader) error {
	c.done.Add(of.Base.Size)
	c.fresh.Add(of.Size)
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
	result, news := copied{Description: *d, Path: path, ElapsedMS: elapsed.Milliseconds()}, ""
	if c.base != nil {
		fresh := c.fresh.Load()
		result.NewBytes, news = &fresh, fmt.Sprintf(" (%s of it new since %s)", humanize.IBytes(uint64(fresh)), c.base.TakenAt.Local().Format(time.DateTime))
	}
	return c.Tell(result, "%s %s%s in %d files, as of %s, in %s", c.verb,
		humanize.IBytes(uint64(d.Bytes)), news, d.Files, d.TakenAt.Local().Format(time.DateTime), term.Spell(elapsed))
}

func (c *copying) line(rate func(int64) float64) string {
	done, total := c.done.Load(), ""
	if d := c.described.Load(); d != nil && (d.Base == nil || c.base != nil) { // what an increment to restore has is not known
		total = " of " + humanize.IBytes(uint64(d.Bytes))
	}
	return fmt.Sprintf("%s · %s%s · %s/s", c.doing, humanize.IBytes(uint64(done)), total, humanize.IBytes(uint64(max(rate(done), 0))))
}
