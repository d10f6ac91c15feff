package topic

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"sync"
	"time"

	"github.com/dustin/go-humanize"
	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/input"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/topic"
)

const topicProduceLong = `Write records to a topic, from FILE or, without it, from standard input. Each line
is the value of a record; with --key-separator the text before the first
separator is its key. With --csv each row is a record, a JSON object of its columns.

With --json each line is an object, as "sluice topic consume --json" prints it:

  {"key":"a7","value":{"total":12},"headers":{"tag":"paid"}}

key and value are strings; a value may be any other JSON, which is written as it
stands, and null is no value. key_base64, value_base64 and headers_base64 have data
that is not text. A header that is repeated has a list. partition and timestamp
(milliseconds) are kept if they are there; topic and offset are not looked at.

The producer is idempotent: a record that had to be sent again is in the topic once.
After a failure it prints how many records were written before.`

// Headers that delay a record.
const (
	headerDelay     = "sluice-delay"
	headerDeliverAt = "sluice-deliver-at"
)

// deliveryPatience is how long records are retried while none is acknowledged.
const deliveryPatience = 2 * time.Minute

// topicProduceFlags are those of "topic produce".
type topicProduceFlags struct {
	brokers.Flags
	recordFormat
	acks, deliverAt string
	delay           time.Duration
}

func newProduceCommand() *cobra.Command {
	var f topicProduceFlags
	command := &cobra.Command{
		Use:   "produce TOPIC [FILE]",
		Short: "Write records to a topic",
		Long:  topicProduceLong,
		Example: `  echo 'a7:{"total":12}' | sluice topic produce orders --key-separator : --header tag=paid
  sluice topic produce zips examples/zipcodes.csv --csv --key-column state
  sluice topic consume orders --until-end --json | sluice topic produce copy --json
  echo 'stand up' | sluice topic produce reminders --delay 30m`,
		Args: exit.Between(1, 2, "give the name of one topic, and the file to read unless it is standard input"),
	}
	command.RunE = f.run
	flags := command.Flags()
	flags.StringVar(&f.separator, "key-separator", "", "`text` between key and value in a line")
	flags.BoolVar(&f.csv, "csv", false, "read CSV with a header")
	flags.StringVar(&f.keyColumn, "key-column", "", "with --csv, the `column` that is the key")
	flags.StringArrayVar(&f.header, "header", nil, "a header of all records, as `name=value`; may be repeated")
	flags.StringVar(&f.acks, "acks", "all", "when a record is written: `all` or 1 when it is durable, 0 when it is sent")
	flags.DurationVar(&f.delay, "delay", 0, "let the records appear after this `duration`, such as 10m")
	flags.StringVar(&f.deliverAt, "deliver-at", "", "let the records appear at this `time`, such as 2026-11-28T08:00:00Z")
	f.Flags.Add(command, "read a JSON object per line, and print JSON")
	return command
}

// run opens the input and produces its records.
func (f *topicProduceFlags) run(command *cobra.Command, args []string) error {
	f.recordFormat.json = f.Flags.JSON
	options, err := f.options(command)
	if err != nil {
		return err
	}
	name := "-"
	if len(args) == 2 {
		name = args[1]
	}
	file, err := input.Open(name, command.InOrStdin())
	if err != nil {
		return err
	}
	defer file.Close() // The file was only read.
	records, err := f.recordFormat.open(input.Name(name), file)
	if err != nil {
		return err
	}
	c, err := f.Flags.Open(command, options...)
	if err != nil {
		return err
	}
	defer c.Kafka.Close()
	p := &production{Client: c, topic: args[0], delays: f.delay > 0 || f.deliverAt != ""}
	return brokers.Explain(p.run(command.Context(), records, file))
}

// options checks the flags and returns the producer's options.
func (f *topicProduceFlags) options(command *cobra.Command) ([]kgo.Opt, error) {
	options := []kgo.Opt{kgo.RecordPartitioner(keptPartitioner{kgo.StickyKeyPartitioner(nil)})}
	switch f.acks {
	case "all", "-1":
	case "1":
		options = append(options, kgo.RequiredAcks(kgo.LeaderAck()), kgo.DisableIdempotentWrite())
	case "0":
		options = append(options, kgo.RequiredAcks(kgo.NoAck()), kgo.DisableIdempotentWrite())
	default:
		return nil, exit.Usage("--acks: %q: want all, 1 or 0", f.acks)
	}
	if err := f.check(); err != nil {
		return nil, err
	}
	if command.Flags().Changed("delay") {
		if f.delay <= 0 || f.deliverAt != "" {
			return nil, exit.Usage("--delay: %v: want a duration above 0, such as 10m, and no --deliver-at", f.delay)
		}
		f.headers = append(f.headers, kgo.RecordHeader{Key: headerDelay, Value: []byte(f.delay.String())})
	}
	if f.deliverAt != "" {
		at, err := time.Parse(time.RFC3339, f.deliverAt)
		if err != nil {
			return nil, exit.Usage("--deliver-at: %q: want a time such as 2026-11-28T08:00:00Z", f.deliverAt)
		}
		f.headers = append(f.headers, kgo.RecordHeader{Key: headerDeliverAt, Value: []byte(at.Format(time.RFC3339Nano))})
	}
	return options, nil
}

// keptPartitioner keeps the partition that a record names. For other records the key decides as in
// every Kafka client; without a key each batch goes to another partition.
type keptPartitioner struct{ kgo.Partitioner }

// ForTopic implements kgo.Partitioner.
func (p keptPartitioner) ForTopic(topic string) kgo.TopicPartitioner {
	return &keptTopicPartitioner{p.Partitioner.ForTopic(topic)}
}

type keptTopicPartitioner struct{ kgo.TopicPartitioner }

// RequiresConsistency implements kgo.TopicPartitioner.
func (p *keptTopicPartitioner) RequiresConsistency(r *kgo.Record) bool {
	return r.Partition >= 0 || p.TopicPartitioner.RequiresConsistency(r)
}

// Partition implements kgo.TopicPartitioner.
func (p *keptTopicPartitioner) Partition(r *kgo.Record, partitions int) int {
	if r.Partition >= 0 {
		return int(r.Partition)
	}
	return p.TopicPartitioner.Partition(r, partitions)
}

// OnNewBatch implements kgo.TopicPartitionerOnNewBatch.
func (p *keptTopicPartitioner) OnNewBatch() {
	if sticky, ok := p.TopicPartitioner.(kgo.TopicPartitionerOnNewBatch); ok {
		sticky.OnNewBatch()
	}
}

// production is one run of "topic produce".
type production struct {
	*brokers.Client
	topic string
	// delays means that the records have headers that delay them.
	delays bool

	mu             sync.Mutex
	records, bytes int64
	failed         error
	// patience ends the command when no record is acknowledged for too long. (The client's own
	// timeout begins at a record's timestamp.)
	patience *time.Timer
}

// errNoAnswer means that the brokers do not answer.
var errNoAnswer = fmt.Errorf("no answer in %v: %w", deliveryPatience, context.DeadlineExceeded)

func (p *production) run(ctx context.Context, records recordReader, file *input.File) error {
	if err := p.check(ctx); err != nil {
		return err
	}
	start := time.Now()
	sending, giveUp := context.WithCancelCause(context.WithoutCancel(ctx))
	defer giveUp(nil)
	p.patience = time.AfterFunc(deliveryPatience, func() {
		if p.Kafka.BufferedProduceRecords() > 0 {
			giveUp(errNoAnswer)
		}
	})
	defer p.patience.Stop()
	shown := term.NewReading(p.Err, "producing", "record", file, p.JSON)
	err := p.send(ctx, sending, records, shown)
	flushed := p.Kafka.Flush(ctx)
	shown.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	if err = cmp.Or(context.Cause(sending), p.failed, err, flushed); err != nil {
		if exit.IsCanceled(err) {
			err = exit.Interrupted(errors.New("interrupted"))
		}
		return fmt.Errorf("%s: %s written, then: %w", p.topic, term.Counted(p.records, "record"), err)
	}
	return p.report(time.Since(start))
}

// check returns an error if the topic cannot take the records.
func (p *production) check(ctx context.Context) error {
	if _, err := p.Client.Topic(ctx, p.topic); err != nil {
		return err
	}
	configs, err := p.ConfigsOf(ctx, p.topic)
	if err != nil {
		return err
	}
	if source := brokers.ValueOfConfig(configs[p.topic], topic.SettingViewOf); source != "" {
		return exit.Usage("%s is a view of %s: produce to that", p.topic, source)
	}
	if p.delays && brokers.ValueOfConfig(configs[p.topic], topic.SettingDelays) != "true" {
		return exit.Usage("%s does not delay records: sluice topic alter %s --set %s=true", p.topic, p.topic, topic.SettingDelays)
	}
	return nil
}

// send hands all records to the client, which sends them in the background, and stops when one of
// them has failed.
func (p *production) send(ctx, sending context.Context, records recordReader, shown *term.Reading) error {
	for sent := int64(0); ctx.Err() == nil; sent++ {
		record, err := records.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err := cmp.Or(err, p.failure()); err != nil {
			return err
		}
		record.Topic = p.topic
		if p.Kafka.BufferedProduceRecords() == 0 {
			p.patience.Reset(deliveryPatience)
		}
		p.Kafka.Produce(sending, record, p.delivered)
		shown.Show(sent)
	}
	return ctx.Err()
}

func (p *production) failure() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.failed
}

// delivered is called with the outcome of a record.
func (p *production) delivered(record *kgo.Record, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case err == nil:
		p.patience.Reset(deliveryPatience)
		p.records++
		p.bytes += int64(len(record.Key) + len(record.Value))
	case p.failed == nil:
		p.failed = err
		if errors.Is(err, kerr.MessageTooLarge) {
			p.failed = fmt.Errorf("a record of %s is larger than the topic's max.message.bytes", humanize.IBytes(uint64(len(record.Value))))
		}
	}
}

func (p *production) report(took time.Duration) error {
	return p.Tell(struct {
		Topic   string  `json:"topic"`
		Records int64   `json:"records"`
		Bytes   int64   `json:"bytes"`
		Seconds float64 `json:"seconds"`
	}{p.topic, p.records, p.bytes, took.Seconds()}, "%s: %s, %s in %s", p.topic, term.Counted(p.records, "record"), humanize.IBytes(uint64(p.bytes)), term.Spell(took))
}

// parseHeaders reads NAME=VALUE pairs.
func parseHeaders(pairs []string) ([]kgo.RecordHeader, error) {
	var headers []kgo.RecordHeader
	for _, pair := range pairs {
		name, value, err := brokers.CutPair("header", pair, "tag=paid")
		if err != nil {
			return nil, err
		}
		headers = append(headers, kgo.RecordHeader{Key: name, Value: []byte(value)})
	}
	return slices.Clip(headers), nil
}
