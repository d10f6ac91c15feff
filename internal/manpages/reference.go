package main

import (
	"bytes"
	"cmp"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/internal/cli"
)

const referenceHead = `# Commands

Of ` + "`sluice --help`" + ` and that of each command, by ` + "`make generate`" + `. The packages have the same as man pages.
What a command needs are [rights](access.md#roles) on a server with accounts.
`

// reference returns all commands as one document.
func reference(root *cobra.Command) []byte {
	var b bytes.Buffer
	b.WriteString(referenceHead)
	writeReference(&b, root)
	return b.Bytes()
}

func writeReference(b *bytes.Buffer, command *cobra.Command) {
	fmt.Fprintf(b, "\n## %s\n\n%s.\n\n```text\n%s\n", command.CommandPath(), strings.TrimSuffix(command.Short, "."), command.UseLine())
	if flags := strings.TrimRight(command.LocalFlags().FlagUsages(), "\n"); flags != "" {
		fmt.Fprintf(b, "\n%s\n", flags)
	}
	b.WriteString("```\n")
	writeNeeds(b, command)
	for _, sub := range documented(command) {
		writeReference(b, sub)
	}
}

// writeNeeds says what rights a command needs on a server with accounts, for each of its forms.
func writeNeeds(b *bytes.Buffer, command *cobra.Command) {
	for _, form := range cli.Forms() {
		if "sluice "+form.Command != command.CommandPath() {
			continue
		}
		with := ""
		if form.Flags != "" {
			with = " with `--" + strings.Join(strings.Fields(form.Flags), "`, `--") + "`"
		}
		fmt.Fprintf(b, "\nNeeds%s: %s.\n", with, cmp.Or(form.Needs().String(), "no right"))
	}
}
