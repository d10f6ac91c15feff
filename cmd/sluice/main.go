package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sluice-project/sluice/config"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// After the first signal the default is back: a second one ends the process.
	context.AfterFunc(ctx, stop)
	code := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(code)
}

// run runs the command that args name, and returns the exit code.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	root := newRoot()
	root.SetArgs(args)
	root.SetOut(stdout)
	root.SetErr(stderr)
	return explain(ctx, root.ExecuteContext(ctx), stderr)
}

// explain says what went wrong, in one line, and returns the exit code.
func explain(ctx context.Context, err error, stderr io.Writer) int {
	if err == nil {
		return 0
	}
	if ctx.Err() != nil && errors.Is(err, context.Canceled) {
		err = fmt.Errorf("interrupted: %w", err)
	}
	_, _ = fmt.Fprintln(stderr, "sluice: "+oneLine(err)) // nowhere else to say it
	return exitCode(err)
}

// usageError is a command asked for wrongly.
type usageError struct{ error }

func (e *usageError) Unwrap() error { return e.error }

// ExitCode is 2.
func (e *usageError) ExitCode() int { return 2 }

// exitCode returns the code for an error: its own, 2 for a wrong setting, or 1.
func exitCode(err error) int {
	var own interface{ ExitCode() int }
	var setting *config.Error
	switch {
	case errors.As(err, &own):
		return own.ExitCode()
	case errors.As(err, &setting):
		return 2
	}
	return 1
}

// oneLine puts joined errors on one line.
func oneLine(err error) string {
	return strings.ReplaceAll(strings.TrimSpace(err.Error()), "\n", "; ")
}
