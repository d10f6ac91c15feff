package main

import (
	"bytes"
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// documented returns the commands directly below a command that have a page.
func documented(command *cobra.Command) (commands []*cobra.Command) {
	for _, sub := range command.Commands() {
		if sub.IsAvailableCommand() {
			commands = append(commands, sub)
		}
	}
	return commands
}

// pageName returns the name of a command's page: sluice-bulk-submit.
func pageName(command *cobra.Command) string {
	return strings.ReplaceAll(command.CommandPath(), " ", "-")
}

// page returns the man page of a command, in the macros of man(7). It has no date, so that the
// same source makes the same page.
func page(command *cobra.Command) []byte {
	var b bytes.Buffer
	name := pageName(command)
	fmt.Fprintf(&b, ".TH %s 1 \"\" Sluice \"Sluice manual\"\n", plain(strings.ToUpper(name)))
	fmt.Fprintf(&b, ".SH NAME\n%s \\- %s\n", plain(name), plain(command.Short))
	fmt.Fprintf(&b, ".SH SYNOPSIS\n.B %s\n", plain(command.UseLine()))
	b.WriteString(".SH DESCRIPTION\n")
	writeText(&b, text(command))
	if subs := documented(command); len(subs) > 0 {
		b.WriteString(".SH COMMANDS\n")
		for _, sub := range subs {
			fmt.Fprintf(&b, ".TP\n.B %s\n%s\n", plain(sub.Name()), plain(sub.Short))
		}
	}
	writeOptions(&b, "OPTIONS", command.LocalFlags())
	writeOptions(&b, "OPTIONS OF ALL COMMANDS", command.InheritedFlags())
	if command.Example != "" {
		fmt.Fprintf(&b, ".SH EXAMPLES\n.nf\n%s\n.fi\n", plain(command.Example))
	}
	writeNeighbors(&b, command)
	return b.Bytes()
}

func text(command *cobra.Command) string {
	if command.Long != "" {
		return command.Long
	}
	return command.Short + "."
}

// writeText writes paragraphs. One with an indented line is a table or an example, whose lines
// stay as they are.
func writeText(b *bytes.Buffer, text string) {
	for paragraph := range strings.SplitSeq(text, "\n\n") {
		if strings.Contains("\n"+paragraph, "\n  ") {
			fmt.Fprintf(b, ".PP\n.nf\n%s\n.fi\n", plain(paragraph))
		} else {
			fmt.Fprintf(b, ".PP\n%s\n", plain(paragraph))
		}
	}
}

// writeOptions writes flags in the words of the help, with their defaults.
func writeOptions(b *bytes.Buffer, title string, flags *pflag.FlagSet) {
	if !flags.HasAvailableFlags() {
		return
	}
	fmt.Fprintf(b, ".SH %s\n", title)
	flags.VisitAll(func(flag *pflag.Flag) {
		var one pflag.FlagSet
		one.AddFlag(flag)
		// The help has a line for each flag: its names and value, three spaces, what it means.
		names, usage, _ := strings.Cut(strings.TrimSpace(one.FlagUsages()), "   ")
		if names != "" {
			fmt.Fprintf(b, ".TP\n.B %s\n%s\n", plain(names), plain(usage))
		}
	})
}

// writeNeighbors names the pages above and below a command.
func writeNeighbors(b *bytes.Buffer, command *cobra.Command) {
	neighbors := documented(command)
	if command.HasParent() {
		neighbors = append([]*cobra.Command{command.Parent()}, neighbors...)
	}
	if len(neighbors) == 0 {
		return
	}
	names := make([]string, len(neighbors))
	for i, neighbor := range neighbors {
		names[i] = fmt.Sprintf("\\fB%s\\fR(1)", plain(pageName(neighbor)))
	}
	fmt.Fprintf(b, ".SH SEE ALSO\n%s\n", strings.Join(names, ",\n"))
}

// plain escapes what roff would take as its own: backslashes, hyphens and lines that begin with
// a control character.
func plain(text string) string {
	text = strings.NewReplacer(`\`, `\e`, "-", `\-`).Replace(text)
	lines := strings.Split(text, "\n")
	for i, line := range lines {
		if strings.HasPrefix(line, ".") || strings.HasPrefix(line, "'") {
			lines[i] = `\&` + line
		}
	}
	return strings.Join(lines, "\n")
}
