package exit

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/config"
)

// Exit codes besides 0 and 1.
const (
	CodeUsage       = 2
	CodeInterrupted = 130
)

// Error is an error that ends the program with an exit code.
type Error struct {
	error
	code int
}

func (e *Error) Unwrap() error { return e.error }

// ExitCode returns the exit code.
func (e *Error) ExitCode() int { return e.code }

// Usage returns an error in a command line.
func Usage(format string, args ...any) error { return &Error{fmt.Errorf(format, args...), CodeUsage} }

// IsUsage reports whether an error ends the command with code 2.
func IsUsage(err error) bool {
	var own interface{ ExitCode() int }
	return errors.As(err, &own) && own.ExitCode() == CodeUsage
}

// Interrupted returns an error that ends the program with the code of an interruption.
func Interrupted(err error) error { return &Error{err, CodeInterrupted} }

// IsCanceled reports whether an error is the end of the command's context.
func IsCanceled(err error) bool { return errors.Is(err, context.Canceled) }

// Explain prints the error of a command on one line and returns the exit code.
func Explain(ctx context.Context, err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && IsCanceled(err) {
		err = fmt.Errorf("interrupted: %w", err)
	}
	_, _ = fmt.Fprintln(stderr, "sluice: "+OneLine(err)) // no other stream is left
	return Code(err)
}

// Code returns the exit code for an error: its own, 2 for a wrong setting, or 1.
func Code(err error) int {
	var own interface{ ExitCode() int }
	var setting *config.Error
	switch {
	case errors.As(err, &own):
		return own.ExitCode()
	case errors.As(err, &setting):
		return CodeUsage
	}
	return 1
}

// OneLine returns the text of joined errors on one line.
func OneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}

// Innermost returns the last error of a chain.
func Innermost(err error) error {
	for next := errors.Unwrap(err); next != nil; next = errors.Unwrap(err) {
		err = next
	}
	return err
}

// One returns a check of arguments that takes exactly one, and otherwise fails with
// a message.
func One(message string) cobra.PositionalArgs { return Between(1, 1, message) }

// Between returns a check of the number of arguments.
func Between(least, most int, message string) cobra.PositionalArgs {
	return func(_ *cobra.Command, args []string) error {
		if len(args) < least || len(args) > most {
			return Usage("%s", message)
		}
		return nil
	}
}

// MarkUsage turns errors in the flags and arguments of a command, and of the commands
// below it, into usage errors.
func MarkUsage(command *cobra.Command) {
	command.SetFlagErrorFunc(func(c *cobra.Command, err error) error {
		return Usage("%w; see %s --help", err, c.CommandPath())
	})
	if command.HasSubCommands() && !command.Runnable() {
		command.Args = knownCommand
		command.RunE = func(c *cobra.Command, _ []string) error { return c.Help() }
	}
	if check := command.Args; check != nil {
		command.Args = func(c *cobra.Command, args []string) error {
			if err := check(c, args); err != nil {
				return Usage("%w; see %s --help", err, c.CommandPath())
			}
			return nil
		}
	}
	for _, sub := range command.Commands() {
		MarkUsage(sub)
	}
}

// knownCommand refuses the name of an unknown command.
func knownCommand(command *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	command.SuggestionsMinimumDistance = 2
	message := fmt.Sprintf("%s has no command %q", command.CommandPath(), args[0])
	if similar := command.SuggestionsFor(args[0]); len(similar) > 0 {
		message += "; did you mean " + strings.Join(similar, " or ") + "?"
	}
	return errors.New(message)
}
