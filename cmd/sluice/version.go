package main

import (
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

func newVersionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version",
		Example: `  sluice version`,
		Args:    cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			info, ok := debug.ReadBuildInfo()
			if !ok {
				return errors.New("this binary was built without module information")
			}
			_, err := fmt.Fprintln(command.OutOrStdout(), version(info))
			return err
		},
	}
}

// version says what was built, of which commit, and by which Go.
func version(info *debug.BuildInfo) string {
	line := "sluice " + info.Main.Version
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	if commit := settings["vcs.revision"]; commit != "" {
		line += " commit " + commit
		if settings["vcs.modified"] == "true" {
			line += " with changes"
		}
	}
	return fmt.Sprintf("%s, %s %s/%s", line, info.GoVersion, settings["GOOS"], settings["GOARCH"])
}
