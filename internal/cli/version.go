package cli

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// release and revision are the version and the commit of a release, which its build sets with
// -ldflags "-X …/internal/cli.release=v1.2.3". Without release the module's version stands;
// revision is for builds in which the toolchain finds no commit, as in a worktree of Git.
var release, revision string

// build describes the source of this binary.
type build struct {
	Version string `json:"version"`
	// Commit and Date are the revision's; empty if the build knew no repository.
	// Modified reports whether files differed from it.
	Commit   string `json:"commit"`
	Date     string `json:"date"`
	Modified bool   `json:"modified"`
	Go       string `json:"go"`
	OS       string `json:"os"`
	Arch     string `json:"arch"`
}

// readBuild reads what the Go toolchain has recorded in this binary.
func readBuild() (build, error) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return build{}, errors.New("this binary was built without module information")
	}
	return buildOf(info), nil
}

func buildOf(info *debug.BuildInfo) build {
	settings := map[string]string{}
	for _, setting := range info.Settings {
		settings[setting.Key] = setting.Value
	}
	return build{
		Version: cmp.Or(release, info.Main.Version), Commit: cmp.Or(settings["vcs.revision"], revision), Date: settings["vcs.time"],
		Modified: settings["vcs.modified"] == "true", Go: info.GoVersion, OS: settings["GOOS"], Arch: settings["GOARCH"],
	}
}

// String returns the build in one line.
func (b build) String() string {
	line := "sluice " + b.Version
	if b.Commit != "" {
		line += " commit " + b.Commit
		if b.Modified {
			line += " with changes"
		}
	}
	return fmt.Sprintf("%s, %s %s/%s", line, b.Go, b.OS, b.Arch)
}

// addVersion adds the flag --version to the root, which prints what "sluice version" does.
func addVersion(root *cobra.Command) {
	b, err := readBuild()
	if err != nil {
		return // "sluice version" says why
	}
	// The root does nothing but help. A version template would make the linker keep all
	// methods of the binary.
	asked := root.Flags().BoolP("version", "v", false, "print the version")
	help := root.HelpFunc()
	root.SetHelpFunc(func(command *cobra.Command, args []string) {
		if command == root && *asked && !command.Flags().Changed("help") {
			_, _ = fmt.Fprintln(command.OutOrStdout(), b)
			return
		}
		help(command, args)
	})
}

func newVersionCommand() *cobra.Command {
	var asJSON bool
	command := &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Example: `  sluice version
  sluice version --json | jq -r .commit`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			b, err := readBuild()
			if err != nil {
				return err
			}
			if asJSON {
				return json.NewEncoder(command.OutOrStdout()).Encode(b)
			}
			_, err = fmt.Fprintln(command.OutOrStdout(), b)
			return err
		},
	}
	command.Flags().BoolVar(&asJSON, "json", false, "print JSON: version, commit, date, modified, go, os, arch")
	return command
}
