package main

import (
	"errors"
	"os"
	"path/filepath"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/config"
)

// specFlags are the flags that describe an action.
type specFlags struct {
	jobType, url, class string
	aggregates          []string
	maxAttempts         int
	timeout             time.Duration
	failAbove           float64
}

func (f *specFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.url, "url", "", "send each job as an HTTP request to this `URL`")
	flags.StringVar(&f.jobType, "type", "", "run each job with the handler of this `type`; built in: echo, whose result is its row")
	flags.StringArrayVar(&f.aggregates, "aggregate", nil,
		"compute of the results: count, sum:FIELD, min:FIELD, max:FIELD,\navg:FIELD, top-errors, latency; may be repeated")
	flags.StringVar(&f.class, "class", "normal", "`class` of the jobs: high, normal or low")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "the most attempts of one job, 1 to 100 (0: the default, 4)")
	flags.DurationVar(&f.timeout, "timeout", 0, "the most time for one attempt, such as 5s (0: the default, 30s)")
	flags.Float64Var(&f.failAbove, "fail-above", 1, "end as FAILED if more than this `share` of an action's jobs fail, 0 to 1")
}

// spec returns what the flags describe, checked as far as it can be without a
// tenant.
func (f *specFlags) spec(command *cobra.Command) (bulk.Spec, error) {
	var spec bulk.Spec
	switch {
	case f.url == "" && f.jobType == "":
		return spec, wrongUsage("say what runs a job: --url URL for HTTP requests, or --type echo to try it out")
	case f.url != "" && f.jobType != "":
		return spec, wrongUsage("give either --url or --type, not both")
	}
	class, err := bulk.ParseClass(f.class)
	if err != nil {
		return spec, wrongUsage("--class: %w", err)
	}
	spec = bulk.Spec{Type: f.jobType, Class: class, Aggregate: f.aggregates, MaxAttempts: f.maxAttempts, Timeout: f.timeout}
	if f.url != "" {
		spec.Target = &bulk.Target{URL: f.url}
	}
	if command.Flags().Changed("fail-above") {
		spec.FailAbove = &f.failAbove
	}
	check := spec
	check.Tenant = "tenant"
	_, err = check.Normalize()
	if wrong := new(bulk.SpecError); errors.As(err, &wrong) {
		return spec, flagError(wrong)
	}
	return spec, err
}

// runFlags are those of "bulk run".
type runFlags struct {
	specFlags
	from    fromTopicFlags
	column  string
	rps     float64
	workers int
	data    string
	secrets []string
	top     int
	json    bool
}

const runLong = `Run every row of a file as a job, one action per tenant, and end with the
result. No server is needed: the engine, its store and its workers run in this
process.

FILE is CSV with a header, or NDJSON if its name ends in .ndjson or .jsonl; "-"
reads standard input, as NDJSON if its first character is "{". A row becomes a
JSON object; the values of CSV stay strings ("00501").

The whole file is read and stored before the first job runs, so that a mistake
in its last line is found before anything is done. Tenants are served fairly, at
most --rps requests per second together.

Aggregates of the actions are merged where that loses nothing: ` + mergeableNames + `
(exactly, in decimal). The others (avg, top-errors, latency) are shown for each
tenant by itself, and are under "per_action" with --json.

Wait is the time from when all was read to a tenant's first finished job,
elapsed that to its last one. 1st half is the tenant's part of what finished in the
first half of the run, and fair the part that an even division gives it.

` + fromTopicLong + `

The exit code is 0 if every job is accounted for (succeeded, failed or canceled)
and no action FAILED (see --fail-above); 1 if not; 2 if flags or input are wrong,
and then nothing has run; 130 after Ctrl-C.`

// newBulkRunCommand returns "sluice bulk run".
func newBulkRunCommand(open opener, input inputOpener) *cobra.Command {
	var f runFlags
	command := &cobra.Command{
		Use:   "run (FILE --tenant-column COLUMN | --from-topic TOPIC) (--url URL | --type TYPE)",
		Short: "Run a file of jobs, or a topic of them, in this process, fairly, to an exact result",
		Long:  runLong,
		Example: `  sluice bulk run examples/zipcodes.csv --tenant-column state --type echo \
      --aggregate count --aggregate sum:latitude
  sluice bulk run orders.ndjson --tenant-column customer --url https://api.example.com/orders \
      --rps 100 --max-attempts 5 --aggregate top-errors
  zcat orders.csv.gz | sluice bulk run - --tenant-column customer --type echo --json
  sluice bulk run --from-topic orders --group billing --data billing-data --tenant-key --url https://api.example.com/orders`,
		Args: f.from.args,
		RunE: func(command *cobra.Command, args []string) error {
			run, err := f.run(command, args, open, input)
			if err != nil {
				return err
			}
			return run.Run(command.Context())
		},
	}
	f.specFlags.add(command)
	flags := command.Flags()
	flags.StringVar(&f.column, "tenant-column", "", "the `column` (NDJSON: field) that names the tenant of a row; required for a file")
	f.from.add(command)
	flags.Float64Var(&f.rps, "rps", 0, "the most attempts started per second, of all tenants together (0: no limit)")
	flags.IntVar(&f.workers, "workers", 0, "how many jobs run at one time, 1 to 10,000 (0: the default, 10)")
	flags.StringVar(&f.data, "data", "", "keep the data in this `directory`, so that an interrupted run can go on\n(default: a temporary one, removed at the end)")
	flags.StringArrayVar(&f.secrets, "secret", nil,
		"sign the requests to --url with this `secret`, whsec_…; may be repeated: the current one first\n(default: those of "+secretsVariable+", which others cannot read as they can command lines)")
	flags.IntVar(&f.top, "top", 10, "how many tenants to show by name; the rest is folded into one line (0: all)")
	flags.BoolVar(&f.json, "json", false, "print nothing but the result, as one JSON object")
	return command
}

func oneFile(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return wrongUsage(`give the file to read, or "-" for standard input`)
	case 1:
		return nil
	default:
		return wrongUsage("give one file, not %d", len(args))
	}
}

// run checks the flags and returns what they ask for.
func (f *runFlags) run(command *cobra.Command, args []string, open opener, input inputOpener) (*bulkRun, error) {
	spec, err := f.spec(command)
	switch {
	case f.column == "" && f.from.topic == "":
		return nil, wrongUsage("--tenant-column: name the column that says whose job a row is")
	case err != nil:
		return nil, err
	case f.jobType != "" && f.jobType != "echo":
		return nil, wrongUsage("--type: %q: there is no handler of this type here: want echo, or --url for HTTP requests;"+
			" workers of other types need a server: sluice bulk submit", f.jobType)
	case f.rps < 0:
		return nil, wrongUsage("--rps: %g requests per second: want more than 0, or 0 for no limit", f.rps)
	case f.workers < 0 || f.workers > 10_000:
		return nil, wrongUsage("--workers: %d: want 1 to 10,000, or 0 for the default", f.workers)
	case f.top < 0:
		return nil, wrongUsage("--top: %d: want how many tenants to show, or 0 for all", f.top)
	}
	webhooks, err := f.webhooks()
	if err != nil {
		return nil, err
	}
	config := bulk.Config{RequestsPerSecond: f.rps, Workers: f.workers}
	if f.rps == 0 {
		config.RequestsPerSecond = -1
	}
	run := &bulkRun{
		flags: f, spec: spec, config: config, webhooks: webhooks,
		open: open, out: screenOf(command.OutOrStdout()), err: screenOf(command.ErrOrStderr()),
	}
	if f.from.topic != "" {
		return run, f.takes(command, run)
	}
	run.file = args[0]
	run.input = func() (rowInput, error) { return input(run.file, command.InOrStdin(), f.column) }
	return run, nil
}

// takes makes a topic the input of a run.
func (f *runFlags) takes(command *cobra.Command, run *bulkRun) error {
	until, err := f.from.check(f.column, "")
	if err != nil {
		return err
	}
	source := &topicSource{flags: &f.from, until: until, spec: run.spec}
	if f.data != "" {
		if source.where, err = filepath.Abs(f.data); err != nil {
			return err
		}
		// The directory is locked, so that this member is there once.
		source.instance = memberOf(source.where)
	}
	f.from.json = f.json
	run.file = "topic " + f.from.topic
	run.input = func() (rowInput, error) {
		in, err := source.open(command)
		if err != nil {
			return nil, err // Not the nil *topicInput, which as a rowInput is not nil.
		}
		return in, nil
	}
	return nil
}

// secretsVariable has secrets with commas between them.
const secretsVariable = "SLUICE_WEBHOOK_SECRETS"

// webhooks returns how requests are signed.
func (f *runFlags) webhooks() (options webhook.Options, err error) {
	from, secrets := "--secret", config.Secrets(f.secrets)
	switch text := os.Getenv(secretsVariable); {
	case len(secrets) > 0 && f.url == "":
		return options, wrongUsage("--secret: there is nothing to sign without --url")
	case len(secrets) == 0 && text != "" && f.url != "":
		from, secrets = secretsVariable, config.ParseSecrets(text)
	}
	if err := secrets.Validate(); err != nil {
		return options, wrongUsage("%s: %w", from, err)
	}
	return webhook.Options{Secrets: secrets}, nil
}

// opener opens the engine on a directory; options are those of webhooks.
type opener func(dir string, config bulk.Config, options webhook.Options) (runner, error)
