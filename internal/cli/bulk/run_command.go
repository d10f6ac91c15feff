package bulk

import (
	"net/netip"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/webhook"
	"github.com/sluice-project/sluice/config"
	"github.com/sluice-project/sluice/internal/cli/bulk/intake"
	"github.com/sluice-project/sluice/internal/cli/bulk/report"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/term"
)

// runFlags are those of "bulk run".
type runFlags struct {
	specFlags
	from    intake.TopicFlags
	column  string
	rps     float64
	workers int
	data    string
	secrets []string
	top     int
	json    bool
}

const runLong = `Run every row of a file as a job, one action for each tenant, and print the result.
No server is needed: the engine, its store and its workers run in this process.

FILE is CSV with a header, or NDJSON if its name ends in .ndjson or .jsonl; "-"
reads standard input, as NDJSON if its first character is "{". A row becomes a
JSON object; the values of CSV stay strings ("00501").

The whole file is read and stored before the first job runs, so a mistake in its last
line is found before any job has run. Tenants are served fairly, with at most --rps
requests per second in total.

Aggregates of the actions are merged if that is exact: ` + report.MergeableNames + `
(in decimal). The others (avg, top-errors, latency) are shown for each tenant, and
are under "per_action" with --json.

In the report, wait is the time from the end of reading to a tenant's first finished
job, and elapsed the time to its last one. 1st half is the tenant's share of the jobs
finished in the first half of the run, and fair its share in an even division.

` + intake.TopicHelp + `

The exit code is 0 if every job is accounted for (succeeded, failed or canceled)
and no action FAILED (see --fail-above); 1 if not; 2 if flags or input are wrong,
and then nothing has run; 130 after Ctrl-C.`

// newRunCommand returns "sluice bulk run".
func newRunCommand(open opener, input inputOpener) *cobra.Command {
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
		Args: f.from.Args,
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
	f.from.Add(command)
	flags.Float64Var(&f.rps, "rps", 0, "the most attempts started per second, of all tenants together (0: no limit)")
	flags.IntVar(&f.workers, "workers", 0, "how many jobs run at one time, 1 to 10,000 (0: the default, 10, or 2,000 webhooks)")
	flags.StringVar(&f.data, "data", "", "keep the data in this `directory`, so that an interrupted run can go on\n(default: a temporary one, removed at the end)")
	flags.StringArrayVar(&f.secrets, "secret", nil,
		"sign the requests to --url with this `secret`, whsec_…; may be repeated: the current one first\n(default: those of "+secretsVariable+", which others cannot read as they can command lines)")
	flags.IntVar(&f.top, "top", 10, "how many tenants to show by name; the rest is folded into one line (0: all)")
	flags.BoolVar(&f.json, "json", false, "print nothing but the result, as one JSON object")
	return command
}

// run checks the flags and returns the run that they describe.
func (f *runFlags) run(command *cobra.Command, args []string, open opener, input inputOpener) (*bulkRun, error) {
	spec, err := f.spec(command)
	switch {
	case f.column == "" && f.from.Topic == "":
		return nil, exit.Usage("--tenant-column: name the column that says whose job a row is")
	case err != nil:
		return nil, err
	case f.jobType != "" && f.jobType != "echo":
		return nil, exit.Usage("--type: %q: there is no handler of this type here: want echo, or --url for HTTP requests;"+
			" workers of other types need a server: sluice bulk submit", f.jobType)
	case f.rps < 0:
		return nil, exit.Usage("--rps: %g requests per second: want more than 0, or 0 for no limit", f.rps)
	case f.workers < 0 || f.workers > 10_000:
		return nil, exit.Usage("--workers: %d: want 1 to 10,000, or 0 for the default", f.workers)
	case f.top < 0:
		return nil, exit.Usage("--top: %d: want how many tenants to show, or 0 for all", f.top)
	}
	webhooks, err := f.webhooks()
	if err != nil {
		return nil, err
	}
	config := bulk.Config{RequestsPerSecond: f.rps, Workers: f.workers, Webhooks: f.workers}
	if f.rps == 0 {
		config.RequestsPerSecond = -1
	}
	run := &bulkRun{
		flags: f, spec: spec, config: config, webhooks: webhooks,
		open: open, Output: term.OutputOf(command, f.json),
	}
	if f.from.Topic != "" {
		return run, f.takes(command, run)
	}
	run.file = args[0]
	run.input = func() (intake.RowInput, error) { return input(run.file, command.InOrStdin(), f.column) }
	return run, nil
}

// takes makes a topic the input of a run.
func (f *runFlags) takes(command *cobra.Command, run *bulkRun) error {
	until, err := f.from.Check(f.column, "")
	if err != nil {
		return err
	}
	source := &intake.TopicSource{Flags: &f.from, Until: until, Spec: run.spec}
	if f.data != "" {
		if source.Where, err = filepath.Abs(f.data); err != nil {
			return err
		}
		// The directory is locked, so this member exists once.
		source.Instance = intake.MemberOf(source.Where)
	}
	f.from.JSON = f.json
	run.file = "topic " + f.from.Topic
	run.input = func() (intake.RowInput, error) {
		in, err := source.Open(command)
		if err != nil {
			return nil, err // Not the nil *TopicRows, which is not nil as a RowInput.
		}
		return in, nil
	}
	return nil
}

// secretsVariable names the variable that has the secrets, separated by commas.
const secretsVariable = "SLUICE_WEBHOOK_SECRETS"

// everywhere are all networks: the person who runs the command names the URL, and nobody else
// can.
var everywhere = []netip.Prefix{netip.MustParsePrefix("0.0.0.0/0"), netip.MustParsePrefix("::/0")}

// webhooks returns how requests are signed.
func (f *runFlags) webhooks() (options webhook.Options, err error) {
	from, secrets := "--secret", config.Secrets(f.secrets)
	switch text := os.Getenv(secretsVariable); {
	case len(secrets) > 0 && f.url == "":
		return options, exit.Usage("--secret: there is nothing to sign without --url")
	case len(secrets) == 0 && text != "" && f.url != "":
		from, secrets = secretsVariable, config.ParseSecrets(text)
	}
	if err := secrets.Validate(webhook.CheckSecrets); err != nil {
		return options, exit.Usage("%s: %w", from, err)
	}
	return webhook.Options{Secrets: secrets, Allow: everywhere, EnvironmentProxy: true}, nil
}
