package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

const referenceHead = `# Commands

Of ` + "`sluice --help`" + ` and that of each command, by ` + "`make generate`" + `. The packages have the same as man pages.
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
	for _, sub := range documented(command) {
		writeReference(b, sub)
	}
}
