package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/sluice-project/sluice/bench"
)

func main() {
	bench.MemoryProcess()
	bench.BareProcess()
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
	runs     int
	folder   string
	profile  string
	slowSync time.Duration
	json     bool
	measures []taker
}

// has reports whether a measure of the part is taken.
func (o options) has(part string) bool {
	return slices.ContainsFunc(o.measures, func(t taker) bool { return t.part == part })
}

func (o options) parts() bench.Parts {
	return bench.Parts{Bulk: o.has(bulkPart), BulkRedis: o.has(bulkRedisPart), Topic: o.has(topicPart), TopicCluster: o.has(topicClusterPart), Room: o.has(roomPart)}
}

func parse(args []string, stderr io.Writer) (o options, err error) {
	flags := flag.NewFlagSet("compare", flag.ContinueOnError)
	flags.SetOutput(stderr)
	flags.IntVar(&o.runs, "runs", 3, "how often each measure is taken")
	flags.StringVar(&o.folder, "dir", os.TempDir(), "where all systems have their files: a folder on a disk")
	flags.StringVar(&o.profile, "pprof", "", "an `address` at which sluice's broker serves profiles while it is measured")
	flags.DurationVar(&o.slowSync, "slow-sync", 0, "how much longer each fsync of sluice's broker and of klite takes, as on a slow disk; needs strace")
	flags.BoolVar(&o.json, "json", false, "print JSON, with the value of each run, in place of tables")
	only := flags.String("only", strings.Join(parts, ","), "the `measures` to take: "+strings.Join(names(), ","))
	if err := flags.Parse(args); err != nil {
		return o, err
	}
	if flags.NArg() > 0 {
		return o, fmt.Errorf("unknown argument %q: there are flags only", flags.Arg(0))
	}
	if o.runs < 1 {
		return o, fmt.Errorf("-runs %d: want at least 1", o.runs)
	}
	o.measures, err = wanted(strings.Split(*only, ","))
	return o, err
}

// compare prints the tables to stdout, and the number of the run to stderr. After an error it
// prints the results so far.
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
	environment.Profile, environment.SlowSync = o.profile, o.slowSync
	facts, err := environment.Facts(ctx, o.parts())
	if err != nil {
		return err
	}
	tables, err := takeAll(ctx, environment, o, stderr)
	if o.json {
		return errors.Join(err, printJSON(stdout, facts, tables, o.runs))
	}
	return errors.Join(err, printAll(stdout, facts, tables, o.runs))
}
