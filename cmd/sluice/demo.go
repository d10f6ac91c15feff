package main

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
)

const demoLong = `Run 42,049 jobs of 59 very unequal tenants, in about 20 seconds, and check the
result to the last decimal; then put 2,600 people in front of a shop and a ride, for
about 15 seconds, and check that the line was fair.

Each job is a row of a real file (American ZIP codes; the tenant is the state),
sent as a webhook to a target on this machine, which serves only so many
requests per second, answers 429 to the others, is slow now and then, and fails
now and then. Our own limit is a little above what the target bears, so some
jobs are turned back and wait for their slot. After a third of the time the
target's rate is configured, and hardly any is turned back from then on.

The report says what each tenant got, how evenly, how long all took against the
ideal, and what failed; and it proves that no job was lost or counted twice: the
exact sum of the latitudes of what succeeded and of what failed must be that of
the file, which is added up by other code.

What happens is published to the topic sluice.bulk.events: each state of an action,
and each job of Texas. A consumer group reads it with a Kafka client meanwhile, and
each event must have come once and in order. The report ends with the last ones.

Then 2,000 visitors come to a small shop that bears 160 at once, and 600 to a ride that
takes 75 each second, each over HTTP through a real gate. Some give up, some walk off
inside, some go away and come back within the grace, some never do. The report is made
from what the rooms have published to the topic sluice.room.events: that there were
never more inside than may be, that nobody who kept asking was overtaken, how long
people waited, and how often that was within the range that they were told.

The exit code is 0 if every job is accounted for, the sums are equal, all events came,
and the rooms have kept what they promise.`

// demoFlags are those of "sluice demo".
type demoFlags struct {
	stay, json bool
	seconds    int
	top        int
	http       string
	kafka      string
	gate       string
}

// demoEngine is an engine that can also be asked over HTTP.
type demoEngine interface {
	runner
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

// demoTarget is what the jobs of the demo call.
type demoTarget struct {
	URL  string
	Stop func(context.Context) error
	// Done counts the jobs that the target did; one that it was asked to do twice
	// counts once.
	Done func() int64
}

// demoParts are what the demo is made of.
type demoParts struct {
	// open serves topics and the gate of the shop at addresses, or at the next ports that
	// are free.
	open   func(ctx context.Context, dir string, config bulk.Config, at demoAddresses) (demoEngine, error)
	target func(requestsPerSecond int) (*demoTarget, error)
	// file is the input, column its tenant, sum the column that is added up.
	file        []byte
	column, sum string
	// tells is the tenant whose jobs have events.
	tells string
	// rooms plays the stage.
	rooms func(ctx context.Context, d *demo, engine demoEngine) (*roomsResult, error)
	stage demoStage
}

// demoAddresses are those of the demo beside that of the HTTP API.
type demoAddresses struct{ Kafka, Gate string }

// newDemoCommand returns "sluice demo".
func newDemoCommand() *cobra.Command {
	return demoCommand(demoParts{
		open: openDemo, target: startDemoTarget,
		file: examples.Zipcodes, column: "state", sum: "latitude", tells: "TX",
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
				return wrongUsage("--seconds: %d: want 5 to 3600", f.seconds)
			}
			if f.top < 0 {
				return wrongUsage("--top: %d: want how many tenants to show, or 0 for all", f.top)
			}
			d := &demo{demoParts: parts, flags: f, out: screenOf(command.OutOrStdout()), err: screenOf(command.ErrOrStderr())}
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
	flags    demoFlags
	out, err screen

	rates demoRates
	dir   string
	told  telling
}

// telling is when the target's rate was configured.
type telling struct {
	After time.Duration // 0: it was not
	// Throttled is how many attempts had been turned back until then.
	Throttled int64
}

// demoRates are the rates of a demo, in requests per second.
type demoRates struct {
	// Target is what the target bears; Limit is ours.
	Target, Limit float64
}

// Parts of the demo's sizing.
const (
	// demoBusy is the part of the time in which the target is asked at its rate;
	// the rest is for the last retries.
	demoBusy = 0.95
	// demoUntold is the part of the time in which the target's rate is not known.
	demoUntold = 1.0 / 3
	// demoExcess is how far our own limit is above the target's.
	demoExcess = 1.04
	// demoWorkers is how many webhooks are in flight at one time. The target is
	// slow now and then, so there are far more than its rate needs on average.
	demoWorkers = 128
	// demoBackoff is the first delay after a failed attempt: the demo has no
	// minute to wait.
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
		RequestsPerSecond: d.rates.Limit, Workers: demoWorkers, BackoffBase: demoBackoff,
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
	if address == "" || interrupted(err) || ctx.Err() != nil {
		return err
	}
	d.stay(ctx, address, engine)
	return err
}

// demoTargetName is what limits know the target by.
const demoTargetName = "demo"

// stopSoon stops something within the grace of an interrupted command.
func stopSoon(ctx context.Context, stop func(context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), drainGrace)
	defer cancel()
	return stop(ctx)
}

// run takes the input in, watches its jobs to their end, and reports.
func (d *demo) run(ctx context.Context, engine demoEngine, target *demoTarget, b *balance) error {
	d.introduce(target)
	tail, err := engine.Tail(ctx, bulkEventsTopic, demoGroup)
	if err != nil {
		return err
	}
	heard := newHeardEvents()
	events := hear(ctx, tail, heard)
	defer events.Close()
	ids, err := d.takeIn(ctx, engine, target)
	if err != nil {
		return d.early(ctx, engine, err)
	}
	// Not before all are sealed: else the first would have a head start.
	if err := engine.Start(ctx); err != nil {
		return err
	}
	var shown display = silent{}
	if !d.flags.json {
		shown = displayOn(d.err, d.flags.top)
	}
	tracked := newTracker(time.Now(), len(ids))
	var last *moment
	actions, err := follow(ctx, engine, ids, lookEvery/2, func(at time.Time, actions []bulk.Action) {
		last = tracked.Observe(at, actions)
		shown.Show(last)
		if untold := demoUntold * float64(d.flags.seconds); d.told.After == 0 && last.Elapsed.Seconds() >= untold {
			d.tell(ctx, engine, shown, last)
		}
	})
	if last != nil {
		shown.Close(last)
	}
	if err != nil {
		return d.early(ctx, engine, err)
	}
	result, err := d.result(ctx, engine, target, newReport(actions, tracked), actions, b)
	if err != nil {
		return err
	}
	if result.events, err = eventsOf(ctx, events, heard, actions, d.tells); err != nil {
		return d.early(ctx, engine, err)
	}
	return d.report(ctx, engine, result)
}

// report reports, and plays in the rooms between.
func (d *demo) report(ctx context.Context, engine demoEngine, result *demoResult) (err error) {
	if !d.flags.json {
		result.writeText(d.out, d.out.Columns(), d.flags.top, paint(d.out.Color))
	}
	if result.rooms, err = d.rooms(ctx, d, engine); err != nil {
		return d.early(ctx, engine, err)
	}
	if d.flags.json {
		err = result.writeJSON(d.out)
	} else {
		result.rooms.writeText(d.out, paint(d.out.Color))
	}
	return errors.Join(err, result.Verdict())
}

// tell configures the target's rate, as an operator would with PUT
// /v1/targets/demo. If it cannot be stored, the run goes on without.
func (d *demo) tell(ctx context.Context, engine demoEngine, shown display, m *moment) {
	change := bulk.SettingsChange{Name: demoTargetName, Target: &bulk.TargetLimits{RequestsPerSecond: d.rates.Target}}
	if err := engine.Set(ctx, change); err != nil {
		shown.Say(fmt.Sprintf("%s: the target's rate could not be configured: %v", spell(m.Elapsed), err))
	} else {
		shown.Say(fmt.Sprintf("%s: the target's rate is configured: %s", spell(m.Elapsed), perSecond(d.rates.Target)))
	}
	d.told = telling{After: m.Elapsed, Throttled: m.All.Throttled}
}

// early ends a demo that did not come to its report.
func (d *demo) early(ctx context.Context, engine runner, err error) error {
	if !interrupted(err) {
		return err
	}
	err = stopSoon(ctx, engine.Stop)
	return &interruptedError{errors.Join(errors.New("interrupted before the report; nothing is kept"), err)}
}

// takeIn stores the whole input and lets its actions run.
func (d *demo) takeIn(ctx context.Context, engine runner, target *demoTarget) ([]string, error) {
	const name = "zipcodes.csv"
	rows := &csvRows{CSV: upload.NewCSV(bytes.NewReader(d.file)), countedInput: &countedInput{}, name: d.column}
	var err error
	if rows.column, err = rows.CSV.Column(d.column); err != nil {
		return nil, err
	}
	start := time.Now()
	in := newIntake(engine, name, d.column, bulk.Spec{
		Target:    &bulk.Target{Name: demoTargetName, URL: target.URL},
		Aggregate: []string{"count", "sum:" + d.sum},
	})
	in.vary = func(spec *bulk.Spec) {
		if spec.Tenant == d.tells {
			spec.Events = []string{bulk.JobEvents}
		}
	}
	if err := in.Read(ctx, rows); err != nil {
		return nil, err
	}
	ids, err := in.Seal(ctx)
	if err == nil {
		d.say("%s of %s read and stored in %s\n", counted(in.Rows(), "job"), counted(int64(len(ids)), "tenant"), spell(time.Since(start)))
	}
	return ids, err
}

func (d *demo) say(format string, args ...any) {
	if !d.flags.json {
		fmt.Fprintf(d.err, format+"\n", args...)
	}
}

func (d *demo) introduce(target *demoTarget) {
	d.say("Each row of zipcodes.csv becomes a webhook to a target on this machine\n(%s) that bears %s: about %d seconds.\nOur own limit is %s, so that the target will turn some jobs back.",
		target.URL, perSecond(d.rates.Target), d.flags.seconds, perSecond(d.rates.Limit))
}

// serve serves the API if the demo is to stay. Address is empty if it is not.
func (d *demo) serve(ctx context.Context, engine demoEngine) (address string, stop func(context.Context) error, err error) {
	if !d.flags.stay {
		return "", func(context.Context) error { return nil }, nil
	}
	address, stop, err = engine.Listen(ctx, d.flags.http)
	if err != nil {
		return "", nil, wrongUsage("--http: %w", err)
	}
	d.say("The HTTP API is at http://%s, topics for Kafka clients at %s.", address, engine.Brokers())
	return address, stop, nil
}

// stay keeps the server up until the command is ended.
func (d *demo) stay(ctx context.Context, address string, engine demoEngine) {
	brokers := engine.Brokers()
	fmt.Fprintf(d.err, stayText, d.dir, address, address, address, address, brokers, brokers, address, address, engine.Rooms().gates[demoShopRoom])
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
