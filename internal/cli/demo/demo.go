package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/upload"
	"github.com/sluice-project/sluice/examples"
	"github.com/sluice-project/sluice/internal/cli/bulk/intake"
	"github.com/sluice-project/sluice/internal/cli/bulk/local"
	"github.com/sluice-project/sluice/internal/cli/bulk/report"
	"github.com/sluice-project/sluice/internal/cli/events"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/input"
	"github.com/sluice-project/sluice/internal/cli/term"
)

const demoLong = `Run 42,049 jobs of 59 very unequal tenants in about 20 seconds and check the result
to the last decimal. Then send 2,600 visitors to a shop and a ride for about 15
seconds and check that the line was fair.

Each job is a row of a real file (American ZIP codes; the tenant is the state), sent
as a webhook to a target on this machine. The target serves a limited number of
requests per second and answers 429 to the others; a few requests are slow, and a few
fail. Our own limit is slightly above the target's, so some jobs are throttled and
retried. After a third of the time the target's rate is configured, and almost no job
is throttled from then on.

The report shows what each tenant got, how evenly, how long the run took compared with
the ideal, and what failed. It proves that no job was lost or counted twice: the exact
sums over the jobs that succeeded and failed must match the sum over the file, which
other code adds up.

Each state of an action, and each job of Texas, is published to the topic
sluice.bulk.events. A consumer group reads it with a Kafka client, and each event must
arrive once and in order. The report ends with the last events.

Then 2,000 visitors come to a shop that holds 160 at once, and 600 to a ride that takes
75 each second, all over HTTP through a real gate. Some give up, some leave without a
word, some go away and come back within the grace, some never return. The report is
made from the events in the topic sluice.room.events: the shop never held more than its
capacity, no visitor who kept asking was overtaken, how long visitors waited, and how
often the wait was within the range they were shown.

The exit code is 0 if every job is accounted for, the sums match, all events arrived,
and the rooms kept their promises.`

// demoFlags are those of "sluice demo".
type demoFlags struct {
	stay, json bool
	seconds    int
	top        int
	http       string
	kafka      string
	gate       string
}

// demoEngine is a bulk engine with topics and rooms, which can be served over HTTP.
type demoEngine interface {
	local.Engine
	Set(ctx context.Context, change bulk.SettingsChange) error
	// Listen serves the HTTP API at an address, or at the next port that is free.
	Listen(ctx context.Context, address string) (at string, stop func(context.Context) error, err error)
	// Brokers is the address for Kafka clients.
	Brokers() string
	// Tail joins a consumer group that reads the events of a topic.
	Tail(ctx context.Context, topic, group string) (eventTail, error)
	// Rooms are the waiting rooms.
	Rooms() *demoRooms
}

// demoParts are the parts of a demo; tests replace some.
type demoParts struct {
	// open serves topics and the gate of the shop at addresses, or at the next ports that
	// are free.
	open   func(ctx context.Context, dir string, config bulk.Config, at demoAddresses) (demoEngine, error)
	target func(requestsPerSecond int) (*demoTarget, error)
	// file is the input, column its tenant, sum the column that is added up.
	file        []byte
	column, sum string
	// eventsTenant is the tenant whose jobs have events.
	eventsTenant string
	// rooms plays the stage.
	rooms func(ctx context.Context, d *demo, engine demoEngine) (*roomsResult, error)
	stage demoStage
}

// demoAddresses are the addresses of the demo, without the HTTP API's.
type demoAddresses struct{ Kafka, Gate string }

// Command returns "sluice demo".
func Command() *cobra.Command {
	return demoCommand(demoParts{
		open: openDemo, target: startDemoTarget,
		file: examples.Zipcodes, column: "state", sum: "latitude", eventsTenant: "TX",
		rooms: playRooms, stage: newDemoStage(),
	})
}

func demoCommand(parts demoParts) *cobra.Command {
	var f demoFlags
	command := &cobra.Command{
		Use:   "demo",
		Short: "Run 42,049 jobs through failures and 2,600 people through a line, and prove the result",
		Long:  demoLong,
		Example: `  sluice demo
  sluice demo --seconds 60 --top 20
  sluice demo --stay      # and then try the API with curl`,
		Args: cobra.NoArgs,
		RunE: func(command *cobra.Command, _ []string) error {
			if f.seconds < 5 || f.seconds > 3600 {
				return exit.Usage("--seconds: %d: want 5 to 3600", f.seconds)
			}
			if f.top < 0 {
				return exit.Usage("--top: %d: want how many tenants to show, or 0 for all", f.top)
			}
			d := &demo{demoParts: parts, flags: f, Output: term.OutputOf(command, f.json)}
			return d.Run(command.Context())
		},
	}
	flags := command.Flags()
	flags.IntVar(&f.seconds, "seconds", 20, "about how long the run takes, 5 to 3600; it sets the rate of the target")
	flags.IntVar(&f.top, "top", 10, "how many tenants to show by name; the rest is folded into one line (0: all)")
	flags.BoolVar(&f.stay, "stay", false, "serve the HTTP API too, and stay up after the report, until Ctrl-C")
	flags.StringVar(&f.http, "http", "127.0.0.1:8080", "with --stay: the `address` to listen on; if it is taken, the next free port")
	flags.StringVar(&f.kafka, "kafka", "127.0.0.1:9092", "with --stay: the `address` for Kafka clients; if it is taken, the next free port\n(without: any free port)")
	flags.StringVar(&f.gate, "gate", "127.0.0.1:8000", "with --stay: the `address` of the gate of the shop; if it is taken, the next free port\n(without: any free port)")
	flags.BoolVar(&f.json, "json", false, "print nothing but the result, as one JSON object")
	return command
}

// demo is one "sluice demo".
type demo struct {
	demoParts
	flags demoFlags
	term.Output

	rates   demoRates
	dir     string
	changed rateChange
	// limits are the settings of the target.
	limits bulk.TargetLimits
}

// rateChange is the moment when the target's rate was configured.
type rateChange struct {
	After time.Duration // 0 if it was not
	// Throttled counts the attempts that had been throttled until then.
	Throttled int64
}

// demoRates are the rates of a demo, in requests per second.
type demoRates struct {
	// Target is the rate of the target, Limit our own limit.
	Target, Limit float64
}

// The sizing of the demo.
const (
	// demoBusy is the share of the time in which the target is called at its rate;
	// the rest is for the last retries.
	demoBusy = 0.95
	// demoUnconfigured is the share of the time before the target's rate is configured.
	demoUnconfigured = 1.0 / 3
	// demoExcess is the ratio of our own limit to the target's.
	demoExcess = 1.04
	// demoWorkers is how many webhooks are in flight at one time. The target is
	// slow now and then, so there are far more than its rate needs on average.
	demoWorkers = 128
	// demoBackoff is the first backoff after a failed attempt, short enough for the demo.
	demoBackoff = 250 * time.Millisecond
)

func ratesFor(jobs int64, seconds int) demoRates {
	target := math.Ceil(float64(jobs) / (demoBusy * float64(seconds)))
	return demoRates{Target: target, Limit: math.Ceil(demoExcess * target)}
}

// Run runs the demo.
func (d *demo) Run(ctx context.Context) (err error) {
	input, rows, err := sumColumn(d.file, d.sum)
	if err != nil {
		return fmt.Errorf("the demo's input: %w", err)
	}
	d.rates = ratesFor(rows, d.flags.seconds)
	if d.dir, err = os.MkdirTemp("", "sluice-demo-"); err != nil {
		return fmt.Errorf("a temporary directory for the demo: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(d.dir)) }()
	target, err := d.target(int(d.rates.Target))
	if err != nil {
		return fmt.Errorf("start the demo's target: %w", err)
	}
	defer func() { err = errors.Join(err, stopSoon(ctx, target.Stop)) }()
	at := demoAddresses{Kafka: d.flags.kafka, Gate: d.flags.gate}
	if !d.flags.stay {
		at = demoAddresses{Kafka: "127.0.0.1:0", Gate: "127.0.0.1:0"}
	}
	engine, err := d.open(ctx, d.dir, bulk.Config{
		RequestsPerSecond: d.rates.Limit, Webhooks: demoWorkers, BackoffBase: demoBackoff,
	}, at)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, engine.Close()) }()
	address, stop, err := d.serve(ctx, engine)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopSoon(ctx, stop)) }()
	err = d.run(ctx, engine, target, &balance{Input: *input, Rows: rows})
	if address == "" || exit.IsCanceled(err) || ctx.Err() != nil {
		return err
	}
	d.stay(ctx, address, engine)
	return err
}

// demoTargetName is what limits know the target by.
const demoTargetName = "demo"

// stopSoon stops something within the grace of an interrupted command.
func stopSoon(ctx context.Context, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), local.DrainGrace)
	defer cancel()
	return stop(ctx)
}

// run stores the input, follows its jobs to their end, and reports.
func (d *demo) run(ctx context.Context, engine demoEngine, target *demoTarget, b *balance) error {
	d.introduce(target)
	tail, err := engine.Tail(ctx, events.BulkTopic, demoGroup)
	if err != nil {
		return err
	}
	seen := newSeenEvents()
	events := readEvents(ctx, tail, seen)
	defer events.Close()
	ids, err := d.takeIn(ctx, engine, target)
	if err != nil {
		return d.early(ctx, engine, err)
	}
	// Start after all are sealed; otherwise the first would have a head start.
	if err := engine.Start(ctx); err != nil {
		return err
	}
	shown, tracked := term.DisplayOn(d.Err, d.flags.top, d.JSON), report.NewTracker(time.Now(), len(ids))
	actions, err := local.Follow(ctx, engine, ids, local.PollInterval/2, func(at time.Time, actions []bulk.Action) {
		m := tracked.Observe(at, actions)
		shown.Show(m)
		if wait := demoUnconfigured * float64(d.flags.seconds); d.changed.After == 0 && m.Elapsed.Seconds() >= wait {
			d.configure(ctx, engine, shown, m)
		}
	})
	shown.Close()
	if err != nil {
		return d.early(ctx, engine, err)
	}
	result, err := d.result(ctx, engine, target, report.New(actions, tracked), actions, b)
	if err != nil {
		return err
	}
	if result.events, err = eventsOf(ctx, events, seen, actions, d.eventsTenant); err != nil {
		return d.early(ctx, engine, err)
	}
	return d.report(ctx, engine, result)
}

// report prints the report of bulk, runs the rooms, and prints theirs.
func (d *demo) report(ctx context.Context, engine demoEngine, result *demoResult) (err error) {
	if !d.JSON {
		result.writeText(d.Out, d.Out.Columns(), d.flags.top, term.Paint(d.Out.Color))
	}
	if result.rooms, err = d.rooms(ctx, d, engine); err != nil {
		return d.early(ctx, engine, err)
	}
	if d.JSON {
		err = result.writeJSON(d.Out)
	} else {
		result.rooms.writeText(d.Out, term.Paint(d.Out.Color))
	}
	return errors.Join(err, result.Verdict())
}

// configure configures the target's rate, as an operator would with PUT /v1/targets/demo. If it
// cannot be stored, the run continues without it.
func (d *demo) configure(ctx context.Context, engine demoEngine, shown *term.Display[*term.Moment], m *term.Moment) {
	d.limits.RequestsPerSecond = d.rates.Target
	change := bulk.SettingsChange{Name: demoTargetName, Target: &d.limits}
	if err := engine.Set(ctx, change); err != nil {
		shown.Say(fmt.Sprintf("%s: the target's rate could not be configured: %v", term.Spell(m.Elapsed), err))
	} else {
		shown.Say(fmt.Sprintf("%s: the target's rate is configured: %s", term.Spell(m.Elapsed), term.PerSecond(d.rates.Target)))
	}
	d.changed = rateChange{After: m.Elapsed, Throttled: m.All.Throttled}
}

// early ends a demo before its report.
func (d *demo) early(ctx context.Context, engine local.Engine, err error) error {
	if !exit.IsCanceled(err) {
		return err
	}
	err = stopSoon(ctx, engine.Stop)
	return exit.Interrupted(errors.Join(errors.New("interrupted before the report; nothing is kept"), err))
}

// takeIn stores the whole input and seals its actions.
func (d *demo) takeIn(ctx context.Context, engine demoEngine, target *demoTarget) ([]string, error) {
	const name = "zipcodes.csv"
	rows := &intake.CsvRows{CSV: upload.NewCSV(bytes.NewReader(d.file)), File: &input.File{}, Name: d.column}
	var err error
	if rows.Column, err = rows.CSV.Column(d.column); err != nil {
		return nil, err
	}
	d.limits.URLPrefix = target.URL
	if err := engine.Set(ctx, bulk.SettingsChange{Name: demoTargetName, Target: &d.limits}); err != nil {
		return nil, err
	}
	start := time.Now()
	in := intake.New(engine, name, d.column, bulk.Spec{
		Target:    &bulk.Target{Name: demoTargetName, URL: target.URL},
		Aggregate: []string{"count", "sum:" + d.sum},
	})
	in.Vary = func(spec *bulk.Spec) {
		if spec.Tenant == d.eventsTenant {
			spec.Events = []string{bulk.JobEvents}
		}
	}
	if err := in.Read(ctx, rows); err != nil {
		return nil, err
	}
	ids, err := in.Seal(ctx)
	if err == nil {
		d.Say("%s of %s read and stored in %s\n", term.Counted(in.Rows(), "job"), term.Counted(int64(len(ids)), "tenant"), term.Spell(time.Since(start)))
	}
	return ids, err
}

func (d *demo) introduce(target *demoTarget) {
	d.Say("Each row of zipcodes.csv becomes a webhook to a target on this machine\n(%s) that serves %s: about %d seconds.\nOur own limit is %s, so that the target throttles some jobs.",
		target.URL, term.PerSecond(d.rates.Target), d.flags.seconds, term.PerSecond(d.rates.Limit))
}

// serve serves the API with --stay; otherwise address is empty.
func (d *demo) serve(ctx context.Context, engine demoEngine) (address string, stop func(context.Context) error, err error) {
	if !d.flags.stay {
		return "", func(context.Context) error { return nil }, nil
	}
	address, stop, err = engine.Listen(ctx, d.flags.http)
	if err != nil {
		return "", nil, exit.Usage("--http: %w", err)
	}
	d.Say("The HTTP API is at http://%s, topics for Kafka clients at %s.", address, engine.Brokers())
	return address, stop, nil
}

// stay keeps the server up until the command ends.
func (d *demo) stay(ctx context.Context, address string, engine demoEngine) {
	brokers := engine.Brokers()
	fmt.Fprintf(d.Err, stayText, d.dir, address, address, address, address, brokers, brokers, address, address, engine.Rooms().gates[demoShopRoom])
	<-ctx.Done()
}

const stayText = `
The server stays up until Ctrl-C. Its data is in %s until then. Try:

  curl -s 'http://%s/v1/actions?tenant=TX'
  curl -s 'http://%s/v1/actions/{id}/failures'
  curl -s http://%s/openapi.json
  sluice bulk list --server http://%s
  sluice topic consume sluice.bulk.events --until-end --brokers %s
  sluice group describe demo --brokers %s
  sluice room create shop --capacity 1 --server http://%s
  sluice room show shop --watch --server http://%s
  # and open %s in two browsers
`
