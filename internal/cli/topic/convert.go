package topic

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/ops"
	"github.com/sluice-project/sluice/topic/convert"
	"github.com/sluice-project/sluice/topic/filestore"
	"github.com/sluice-project/sluice/topic/natsstore"
)

func newConvertCommand() *cobra.Command {
	var c conversion
	command := &cobra.Command{
		Use:   "convert",
		Short: "Convert the topics of a single server of an earlier release",
		Long: `Convert the topics of a stopped server without --cluster from the format of earlier
releases, which kept them in JetStream, into files. Records keep their offsets; groups,
delayed records and the state of producers are converted too.

The disk needs as much space again. Until all is copied and checked, the data is as it
was: if the command is killed, the same command starts again. Afterwards the old data is
in topic/jetstream below the data directory: remove that when you are satisfied.`,
		Example: "  sluice topic convert --data sluice-data",
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			c.Out, c.Err = term.ScreenOf(command.OutOrStdout()), term.ScreenOf(command.ErrOrStderr())
			return c.run(command.Context())
		},
	}
	command.Flags().StringVar(&c.data, "data", "sluice-data", "data `directory` of the stopped server")
	command.Flags().BoolVar(&c.JSON, "json", false, "end with a JSON object")
	return command
}

// conversion is one run of the command.
type conversion struct {
	data string
	term.Output
}

// convertedTopics is the result of the command.
type convertedTopics struct {
	Data string `json:"data"`
	// Logs counts partitions, and their delayed records if they have any; Items the metadata's.
	Logs    int   `json:"logs"`
	Entries int64 `json:"entries"`
	Bytes   int64 `json:"bytes"`
	Items   int   `json:"items"`
	// Before reports whether there was nothing to convert.
	Before    bool  `json:"converted_before,omitempty"`
	ElapsedMS int64 `json:"elapsed_ms"`
}

func (c *conversion) run(ctx context.Context) error {
	log, err := ops.NewLogger(c.Err, "text", slog.LevelWarn)
	if err != nil {
		return err
	}
	dir := filepath.Join(c.data, "topic")
	if _, err := os.Stat(dir); err != nil {
		return fmt.Errorf("%s is not a data directory with topics: %w", c.data, err)
	}
	old, err := isStandalone(dir, log)
	if err != nil {
		return err
	}
	if !old {
		return c.report(convertedTopics{Data: c.data, Before: true})
	}
	began := time.Now()
	result, err := c.convert(ctx, dir, log)
	if err != nil {
		if ctx.Err() != nil {
			return exit.Interrupted(err)
		}
		return err
	}
	return c.report(convertedTopics{
		Data: c.data, Logs: result.Logs, Entries: result.Entries, Bytes: result.Bytes, Items: result.Items,
		ElapsedMS: time.Since(began).Milliseconds(),
	})
}

// isStandalone reports whether a directory has topics in the format of earlier releases.
func isStandalone(dir string, log *slog.Logger) (bool, error) {
	store, err := filestore.Open(dir, filestore.Options{Logger: log})
	var format *filestore.FormatError
	if errors.As(err, &format) && format.Standalone() {
		return true, nil
	}
	if err != nil {
		return false, err
	}
	return false, store.Close()
}

// convert copies the topics into a folder of their own, and makes that the store.
func (c *conversion) convert(ctx context.Context, dir string, log *slog.Logger) (convert.Result, error) {
	source, err := natsstore.Open(dir, natsstore.Options{Logger: log})
	if err != nil {
		return convert.Result{}, err
	}
	into := filepath.Join(dir, "converting")
	result, err := c.copy(ctx, source, into, log)
	if err = errors.Join(err, source.Close()); err != nil {
		return result, err
	}
	return result, filestore.Adopt(dir, into)
}

func (c *conversion) copy(ctx context.Context, source *natsstore.Store, into string, log *slog.Logger) (result convert.Result, err error) {
	if err := os.RemoveAll(into); err != nil { // of a run that was interrupted
		return result, err
	}
	// Closing the store syncs everything.
	target, err := filestore.Open(into, filestore.Options{Logger: log, SyncInterval: time.Minute})
	if err != nil {
		return result, err
	}
	var progress convert.Progress
	err = term.WhileShown(c.Err, func() (err error) {
		result, err = convert.Run(ctx, source, target, &progress)
		return err
	}, func(rate func(int64) float64) string {
		bytes := progress.Bytes.Load()
		return fmt.Sprintf("converting · %s logs · %s entries · %s · %s/s", humanize.Comma(progress.Logs.Load()),
			humanize.Comma(progress.Entries.Load()), humanize.IBytes(uint64(bytes)), humanize.IBytes(uint64(max(rate(bytes), 0))))
	})
	return result, errors.Join(err, target.Close())
}

func (c *conversion) report(r convertedTopics) error {
	if c.JSON {
		return c.WriteJSON(&r)
	}
	if r.Before {
		fmt.Fprintf(c.Err, "the topics in %s are in files already: there is nothing to convert\n", c.data)
		return nil
	}
	fmt.Fprintf(c.Err, "converted %s logs with %s entries (%s) in %v\nthe old data is in %s: remove it when you are satisfied\n",
		humanize.Comma(int64(r.Logs)), humanize.Comma(r.Entries), humanize.IBytes(uint64(r.Bytes)),
		term.Spell(time.Duration(r.ElapsedMS)*time.Millisecond), filepath.Join(c.data, "topic", "jetstream"))
	return nil
}
