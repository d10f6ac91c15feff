package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/sluice-project/sluice/bench"
)

func main() {
	bench.MemoryProcess()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := compare(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	if err != nil && !errors.Is(err, flag.ErrHelp) {
		fmt.Fprintln(os.Stderr, "compare:", err)
		os.Exit(1)
	}
}

// options are the flags.
type options struct {
	runs   int
	folder string
	only   []string
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.runs, "runs", 3, "how often each measure is taken")
	flags.StringVar(&o.folder, "dir", os.TempDir(), "where all systems have their files: a folder on a disk")
	only := flags.String("only", strings.Join(names(), ","), "the measures to take")
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q: there are flags only", flags.Arg(0))
	}
	if o.runs < 1 {
		return o, fmt.Errorf("-runs %d: want at least 1", o.runs)
	}
	o.only = strings.Split(*only, ",")
	return o, checkNames(o.only)
}

// compare prints the tables to stdout, and which run it is to stderr. After an
// error it prints what there is.
func compare(ctx context.Context, args []string, stdout, stderr io.Writer) (err error) {
	o, err := parse(args, stderr)
	if err != nil {
		return err
	}
	environment, err := bench.NewEnvironment(o.folder)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, environment.Close()) }()
	facts, err := environment.Facts(ctx)
	if err != nil {
		return err
	}
	tables, err := takeAll(ctx, environment, o, stderr)
	return errors.Join(err, printAll(stdout, facts, tables, o.runs))
}
