package bulk

import (
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/internal/cli/bulk/intake"
	"github.com/sluice-project/sluice/internal/cli/exit"
)

// specFlags are the flags that describe an action.
type specFlags struct {
	jobType, url, class string
	// key, target and keepResults are for servers only, which have jobs of other actions, know targets
	// by name and can be asked for results.
	key, target string
	keepResults bool
	cost        int64
	aggregates  []string
	maxAttempts int
	timeout     time.Duration
	failAbove   float64
}

func (f *specFlags) add(command *cobra.Command) {
	f.addJob(command)
	flags := command.Flags()
	flags.StringArrayVar(&f.aggregates, "aggregate", nil,
		"compute of the results: count, sum:FIELD, min:FIELD, max:FIELD,\navg:FIELD, top-errors, latency; may be repeated")
	flags.Float64Var(&f.failAbove, "fail-above", 1, "end as FAILED if more than this `share` of an action's jobs fail, 0 to 1")
}

// addJob adds the flags that describe a job.
func (f *specFlags) addJob(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.url, "url", "", "send each job as an HTTP request to this `URL`")
	flags.StringVar(&f.jobType, "type", "", "run each job with the handler of this `type`; built in: echo, whose result is its row")
	flags.StringVar(&f.class, "class", "normal", "`class` of the jobs: high, normal or low")
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "the most attempts of one job, 1 to 100 (0: the default, 4)")
	flags.DurationVar(&f.timeout, "timeout", 0, "the most time for one attempt, such as 5s (0: the default, 30s)")
}

// addServer adds the flags for servers only.
func (f *specFlags) addServer(command *cobra.Command) {
	command.Flags().StringVar(&f.key, "key", "", "which of the tenant's customers the jobs are for: the `keys` of a\ntenant that wait have equal parts of what it gets")
	command.Flags().Int64Var(&f.cost, "cost", 0, "what an attempt counts in limits by key whose cost is \"cost\"; 0 is 1")
	command.Flags().BoolVar(&f.keepResults, "keep-results", false, "keep what each job returns, up to 64 KiB: \"sluice bulk why\" shows it")
	command.Flags().StringVar(&f.target, "target", "", "send each job to the target of this `name`; --url is then a path below its prefix")
}

// spec returns the spec that the flags describe, checked as far as is possible without a tenant.
func (f *specFlags) spec(command *cobra.Command, events ...string) (bulk.Spec, error) {
	var spec bulk.Spec
	switch {
	case f.url == "" && f.target == "" && f.jobType == "":
		return spec, exit.Usage("say what runs a job: --url URL for HTTP requests, or --type echo to try it out")
	case f.target != "" && f.jobType != "":
		return spec, exit.Usage("give either --target or --type, not both")
	case f.url != "" && f.jobType != "":
		return spec, exit.Usage("give either --url or --type, not both")
	}
	class, err := bulk.ParseClass(f.class)
	if err != nil {
		return spec, exit.Usage("--class: %w", err)
	}
	spec = bulk.Spec{Type: f.jobType, Class: class, Key: f.key, Cost: f.cost, Aggregate: f.aggregates, MaxAttempts: f.maxAttempts, Timeout: f.timeout, Events: events, KeepResults: f.keepResults}
	if f.url != "" || f.target != "" {
		spec.Target = &bulk.Target{Name: f.target, URL: f.url}
	}
	if command.Flags().Changed("fail-above") {
		spec.FailAbove = &f.failAbove
	}
	check := spec
	check.Tenant = "tenant"
	if f.target != "" {
		check.Target = &bulk.Target{Name: f.target, URL: "http://prefix/"} // The server knows the prefix.
	}
	_, err = check.Normalize()
	if wrong := new(bulk.SpecError); errors.As(err, &wrong) {
		return spec, intake.FlagError(wrong)
	}
	return spec, err
}
