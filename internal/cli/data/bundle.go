package data

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/bundle"
	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/remote"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// Debug returns the command sluice debug.
func Debug() *cobra.Command {
	command := &cobra.Command{
		Use:     "debug",
		Short:   "Gather what explains how a server behaves",
		Example: `  sluice debug bundle --to problem.tar.gz`,
		Args:    cobra.NoArgs,
		RunE:    func(command *cobra.Command, _ []string) error { return command.Help() },
	}
	command.AddCommand(bundleCommand())
	return command
}

func bundleCommand() *cobra.Command {
	var server remote.Flags
	var topics brokers.Flags
	var to string
	var seconds int
	command := &cobra.Command{
		Use:   "bundle",
		Short: "Gather what explains how a running server behaves, in one file",
		Long: `Gather what somebody needs who cannot reach the server: its version, settings, the end of
its log, goroutines, memory, a profile of its processor, metrics before and after that,
the first page of its rooms, actions, schedules and topics, and what "sluice doctor" finds.

The file is a tar, compressed with gzip. It has no secrets, payloads or records; names of
tenants, rooms, topics, groups and accounts are in it. What cannot be had is listed in its
errors.txt. Of several servers, gather one for each.

With accounts it needs a token that may read profiles of the process, such as an operator's.`,
		Example: `  sluice debug bundle --to problem.tar.gz
  sluice debug bundle --to - --seconds 0 | tar tz`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			asked, err := server.Open(command)
			if err != nil {
				return err
			}
			if to == "" {
				return exit.Usage("--to: want a file, or - for standard output")
			}
			if seconds < 0 || seconds > bundle.MaxSeconds {
				return exit.Usage("--seconds: want 0 to %d", bundle.MaxSeconds)
			}
			g := &gathering{Output: term.OutputOf(command, server.JSON), server: asked, seconds: seconds}
			if to == standard {
				g.Out = g.Err // standard output has the bundle
				return g.run(command, &topics, "", command.OutOrStdout())
			}
			return g.into(command, &topics, to)
		},
	}
	command.Flags().StringVar(&to, "to", "", "`file` to write, or - for standard output")
	command.Flags().IntVar(&seconds, "seconds", 5, "how long the server's processor is profiled; 0 for not at all")
	server.Add(command)
	topics.AddBrokers(command)
	return command
}

// gathering is one run of the command.
type gathering struct {
	term.Output
	server  *remote.Client
	seconds int
}

// gathered is the result of the command.
type gathered struct {
	Path    string   `json:"path,omitempty"`
	Files   int      `json:"files"`
	Missing []string `json:"missing"`
}

// into writes a bundle to a new file.
func (g *gathering) into(command *cobra.Command, topics *brokers.Flags, path string) error {
	file, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, os.ErrExist) {
		return exit.Usage("--to: %s exists already: remove it, or choose another name", path)
	}
	if err != nil {
		return err
	}
	if err = errors.Join(g.run(command, topics, path, file), file.Close()); err != nil {
		return errors.Join(err, os.Remove(path))
	}
	return nil
}

// run gathers a bundle, shows that it does, and reports the result.
func (g *gathering) run(command *cobra.Command, topics *brokers.Flags, path string, to io.Writer) error {
	ctx := command.Context()
	a := bundle.NewArchive(to, time.Now())
	doing := func(func(int64) float64) string {
		return fmt.Sprintf("gathering · the profile takes %s", term.Spell(time.Duration(g.seconds)*time.Second))
	}
	err := term.WhileShown(g.Err, func() error {
		return errors.Join(g.gather(ctx, a), g.examine(command, topics, a), a.Close())
	}, doing)
	switch {
	case ctx.Err() != nil:
		return exit.Interrupted(ctx.Err())
	case err != nil:
		return err
	}
	missing := strings.FieldsFunc(a.Missing(), func(r rune) bool { return r == '\n' })
	for _, line := range missing {
		g.Say("missing: %s", term.Printable(line))
	}
	return g.Tell(gathered{path, a.Files, append([]string{}, missing...)}, "%d files in %s", a.Files, path)
}

// gather adds what the server says. A server that does not answer at all is an error.
func (g *gathering) gather(ctx context.Context, a *bundle.Archive) error {
	if err := g.add(ctx, a, "metrics.txt", "/metrics"); err != nil {
		return err
	}
	if err := g.addProcess(ctx, a); err != nil {
		return err
	}
	for _, f := range [][2]string{
		{"metrics-later.txt", "/metrics"}, {"ready.json", "/readyz"}, {"rooms.json", "/v1/rooms"}, {"actions.json", "/v1/actions"},
		{"schedules.json", "/v1/schedules"}, {"limits.json", "/v1/limits"}, {"cluster.json", "/v1/cluster"},
	} {
		if err := g.add(ctx, a, f[0], f[1]); err != nil {
			return err
		}
	}
	return nil
}

// add adds an answer of the server.
func (g *gathering) add(ctx context.Context, a *bundle.Archive, name, path string) error {
	return a.Add(name, func() ([]byte, error) { return g.server.Fetch(ctx, http.MethodGet, path, nil) })
}

// addProcess adds what the server says about its process. The error is that of the connection or of the right.
func (g *gathering) addProcess(ctx context.Context, a *bundle.Archive) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(g.seconds)*time.Second+time.Minute)
	defer cancel()
	response, err := g.server.Send(ctx, http.MethodGet, bundle.Path+"?seconds="+strconv.Itoa(g.seconds), nil)
	if err != nil {
		return err
	}
	defer response.Body.Close() // it was only read
	if response.StatusCode != http.StatusOK {
		return g.server.Refusal(response, ", of a release that has bundles")
	}
	return a.Merge(response.Body)
}

// examine adds what the doctor finds, and the topics.
func (g *gathering) examine(command *cobra.Command, topics *brokers.Flags, a *bundle.Archive) error {
	ctx := command.Context()
	found := &examination{Output: g.Output}
	found.examineReady(ctx, g.server)
	client, err := topics.Open(command)
	if err != nil {
		return a.Add("topics.json", func() ([]byte, error) { return nil, err })
	}
	defer client.Kafka.Close()
	found.examineBrokers(ctx, client.Admin)
	return errors.Join(
		a.Add("doctor.json", asJSON(found.findings, nil)),
		a.Add("topics.json", func() ([]byte, error) {
			all, err := client.Admin.ListTopics(ctx)
			return asJSON(all.Sorted(), err)()
		}),
		a.Add("groups.json", func() ([]byte, error) {
			all, err := client.Admin.ListGroups(ctx)
			return asJSON(all.Sorted(), err)()
		}),
	)
}

func asJSON(value any, err error) func() ([]byte, error) {
	return func() ([]byte, error) {
		text, encoded := json.MarshalIndent(value, "", "  ")
		return text, errors.Join(err, encoded)
	}
}
