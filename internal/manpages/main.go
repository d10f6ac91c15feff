package main

import (
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli"
)

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "manpages:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	if len(args) != 1 {
		return errors.New("want one argument, the folder to write to")
	}
	for _, written := range []string{"man", "completions"} { // a command that is gone has no page
		if err := os.RemoveAll(filepath.Join(args[0], written)); err != nil {
			return err
		}
	}
	root := commands()
	return errors.Join(writePages(root, filepath.Join(args[0], "man")), writeCompletions(root, filepath.Join(args[0], "completions")))
}

// commands returns all commands, with those that cobra adds.
func commands() *cobra.Command {
	root := cli.Root()
	root.InitDefaultHelpCmd()
	root.InitDefaultCompletionCmd()
	return root
}

// writePages writes the page of a command and of all below it, compressed as systems keep them.
func writePages(command *cobra.Command, folder string) error {
	var packed bytes.Buffer
	w := gzip.NewWriter(&packed)
	_, err := w.Write(page(command))
	err = errors.Join(err, w.Close(), writeFile(filepath.Join(folder, pageName(command)+".1.gz"), packed.Bytes()))
	for _, sub := range documented(command) {
		err = errors.Join(err, writePages(sub, folder))
	}
	return err
}

// writeCompletions writes a file for each shell, under the name that the shell looks for.
func writeCompletions(root *cobra.Command, folder string) error {
	var bash, zsh, fish bytes.Buffer
	return errors.Join(
		root.GenBashCompletionV2(&bash, true), writeFile(filepath.Join(folder, "bash", "sluice"), bash.Bytes()),
		root.GenZshCompletion(&zsh), writeFile(filepath.Join(folder, "zsh", "_sluice"), zsh.Bytes()),
		root.GenFishCompletion(&fish, true), writeFile(filepath.Join(folder, "fish", "sluice.fish"), fish.Bytes()),
	)
}

func writeFile(path string, content []byte) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil { //nolint:gosec // packages are for everybody
		return err
	}
	return os.WriteFile(path, content, 0o644) //nolint:gosec // packages are for everybody
}
