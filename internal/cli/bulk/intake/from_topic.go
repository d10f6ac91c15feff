package intake

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/sluice-project/sluice/bulk"
	"github.com/sluice-project/sluice/bulk/upload"
	"github.com/sluice-project/sluice/internal/cli/brokers"
	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/input"
	"github.com/sluice-project/sluice/internal/cli/term"
)

func oneFile(_ *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return exit.Usage(`give the file to read, or "-" for standard input`)
	case 1:
		return nil
	default:
		return exit.Usage("give one file, not %d", len(args))
	}
}

// TopicHelp is the help text of commands that take jobs from a topic.
const TopicHelp = `With --from-topic the jobs are the records that TOPIC has when the command starts, up
to --until; each value is one JSON value. The tenant is a field of it (--tenant-field),
a header (--tenant-header) or the key (--tenant-key). With --group each record is taken
once: the command starts at the group's offsets, records its plan in their metadata
before it takes anything, and commits at the end. After a kill the same command resumes
with the same records; see docs/bulk/from-topic.md for the guarantees. Without --group
all records are taken, and nothing is committed.

A record that cannot be a job ends the command before any job has run, with its
partition and offset; --skip-bad skips such records and names them.`

// TopicFlags are the flags of commands that take jobs from a topic.
type TopicFlags struct {
	brokers.Flags
	Topic, group, until string
	field, header       string
	key, skipBad        bool
}

// fromTopicOnly are the flags that have no effect without --from-topic.
var fromTopicOnly = []string{"brokers", "group", "until", "tenant-field", "tenant-header", "tenant-key", "skip-bad"}

func (f *TopicFlags) Add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.Topic, "from-topic", "", "take the records of this `topic` as jobs, in place of a file")
	flags.StringVar(&f.group, "group", "", "with --from-topic: take what this consumer `group` has not, each record once")
	flags.StringVar(&f.until, "until", "end", "with --from-topic: take the records before this `place`: end, an offset, a time\nsuch as 2026-11-28T08:00:00Z, or a duration such as 10m for that long ago")
	flags.StringVar(&f.field, "tenant-field", "", "with --from-topic: the `field` of the value that names the tenant")
	flags.StringVar(&f.header, "tenant-header", "", "with --from-topic: the `header` that names the tenant; the last of that name")
	flags.BoolVar(&f.key, "tenant-key", false, "with --from-topic: the record's key names the tenant")
	flags.BoolVar(&f.skipBad, "skip-bad", false, "with --from-topic: leave out the records that cannot be jobs")
	f.AddBrokers(command)
}

// Args is for commands that take either a file or --from-topic.
func (f *TopicFlags) Args(command *cobra.Command, args []string) error {
	if f.Topic == "" {
		for _, name := range fromTopicOnly {
			if command.Flags().Changed(name) {
				return exit.Usage("--%s is for jobs from a topic: give --from-topic TOPIC too", name)
			}
		}
		return oneFile(command, args)
	}
	if len(args) > 0 {
		return exit.Usage("give either a file or --from-topic, not both")
	}
	return nil
}

// Check checks the flags of a command that takes jobs from a topic. At most one flag may determine
// the tenant: one of these, or other, if it is not empty.
func (f *TopicFlags) Check(column, other string) (brokers.Place, error) {
	named := 0
	for _, given := range []bool{f.field != "", f.header != "", f.key, other != ""} {
		if given {
			named++
		}
	}
	switch {
	case column != "":
		return brokers.Place{}, exit.Usage("--tenant-column is for files: with --from-topic give --tenant-field, --tenant-header or --tenant-key")
	case named != 1:
		return brokers.Place{}, exit.Usage("say whose job a record is, by one of --tenant-field, --tenant-header and --tenant-key")
	}
	until, err := brokers.ParsePlace(f.until, time.Now())
	if err == nil && until.Kind == brokers.AtStart {
		err = errors.New("want what lies after the start")
	}
	if err != nil {
		return brokers.Place{}, exit.Usage("--until: %w", err)
	}
	return until, nil
}

// tenantOf returns a function that finds the tenant of a record; if one is given, it is the tenant
// of all.
func (f *TopicFlags) tenantOf(one string) func(*kgo.Record, []byte) (string, error) {
	switch {
	case one != "":
		return func(*kgo.Record, []byte) (string, error) { return one, nil }
	case f.field != "":
		return func(_ *kgo.Record, payload []byte) (string, error) { return field(payload, f.field) }
	case f.header != "":
		return func(record *kgo.Record, _ []byte) (string, error) {
			for _, header := range slices.Backward(record.Headers) {
				if header.Key == f.header {
					return named(header.Value, fmt.Sprintf("header %q", f.header))
				}
			}
			return "", fmt.Errorf("there is no header %q", f.header)
		}
	default:
		return func(record *kgo.Record, _ []byte) (string, error) { return named(record.Key, "the key") }
	}
}

func named(tenant []byte, by string) (string, error) {
	if len(tenant) == 0 {
		return "", fmt.Errorf("the tenant is empty: %s needs a value", by)
	}
	return string(tenant), nil
}

// TopicRows reads the records of a topic as the rows of an intake.
type TopicRows struct {
	*brokers.Client
	flags  *TopicFlags
	until  brokers.Place
	tenant func(*kgo.Record, []byte) (string, error)
	// as identifies the command, so that a run is resumed only by the same one.
	as string
	// instance is the group's static member if no other process can use it at the same time;
	// otherwise empty.
	instance string
	join     func(options ...kgo.Opt) (*brokers.Client, error)
	member   *brokers.Client // in the group
	refused  refusal

	plan *topicPlan
	// left are the partitions that have not been read, in order. fetch reads the first of them from
	// next on.
	left  []takenPartition
	fetch func(takenPartition) ([]*kgo.Record, int64, error)
	ahead []*kgo.Record

	record      *kgo.Record // the last record, its payload and its tenant
	payload     []byte
	whose       string
	read, size  int64
	bad, toldOf int64
}

// TopicSource describes a topic as an input.
type TopicSource struct {
	Flags  *TopicFlags
	Until  brokers.Place
	Tenant string // tenant of all records; if empty, each record has its own
	// Spec and Where must be the same when a run is resumed: the spec of the jobs, and who takes
	// them.
	Spec  bulk.Spec
	Where string
	// Instance is the group's static member; see TopicRows.
	Instance string
}

// MemberOf returns the name of the group's static member for a place.
func MemberOf(where string) string {
	digest := sha256.Sum256([]byte(where))
	return "sluice-bulk-" + hex.EncodeToString(digest[:8])
}

// Open connects to the brokers and finds the topic.
func (s *TopicSource) Open(command *cobra.Command) (*TopicRows, error) {
	f := s.Flags
	as, err := json.Marshal([]any{s.Spec, s.Where, s.Tenant, f.field, f.header, f.key})
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(as)
	c, err := f.Open(command)
	if err != nil {
		return nil, err
	}
	if _, err := c.Topic(command.Context(), f.Topic); err != nil {
		c.Kafka.Close()
		return nil, brokers.Explain(err)
	}
	return &TopicRows{
		Client: c, flags: f, until: s.Until, tenant: f.tenantOf(s.Tenant), as: hex.EncodeToString(digest[:8]), instance: s.Instance,
		join: func(options ...kgo.Opt) (*brokers.Client, error) { return f.Open(command, options...) },
	}, nil
}

// Close leaves the group and disconnects from the brokers.
func (in *TopicRows) Close() error {
	if in.member != nil {
		in.leave()
		in.member.Kafka.Close()
	}
	in.Kafka.Close()
	return nil
}

// Begin decides which records to take, and stores the plan in the group.
func (in *TopicRows) Begin(ctx context.Context) error {
	if in.flags.group != "" {
		if err := in.enter(ctx); err != nil {
			return brokers.Explain(err)
		}
	}
	if err := in.makePlan(ctx); err != nil {
		return brokers.Explain(err)
	}
	in.left = in.plan.unread()
	for _, p := range in.left {
		in.size += p.end - p.next
	}
	in.fetch = func(p takenPartition) ([]*kgo.Record, int64, error) { return in.read1(ctx, p) }
	return nil
}

// Empty reports whether there are no records to take.
func (in *TopicRows) Empty() bool { return in.size == 0 }

// Resumes reports whether the same command resumes the run after a failure.
func (in *TopicRows) Resumes() bool { return in != nil && in.plan != nil && in.plan.Run != "" }

// Vary sets the id of an action, which is the same in each attempt of the run.
func (in *TopicRows) Vary(spec *bulk.Spec) {
	if in.plan.Run != "" {
		of := sha256.Sum256([]byte(spec.Tenant))
		spec.ID = "topic-" + in.plan.Run + "-" + hex.EncodeToString(of[:10])
	}
}

// topicError is a failure to read, as opposed to an error in a record.
type topicError struct{ error }

func (e *topicError) Unwrap() error { return e.error }

// Next implements rowSource.
func (in *TopicRows) Next() ([]byte, error) {
	for {
		for len(in.ahead) == 0 {
			if len(in.left) == 0 {
				in.tellSkipped()
				return nil, io.EOF
			}
			if err := in.readOn(); err != nil {
				return nil, &topicError{err}
			}
		}
		in.record, in.ahead = in.ahead[0], in.ahead[1:]
		in.read++
		err := in.take()
		if err == nil {
			return in.payload, nil
		}
		wrong := input.Wrong(in.Name(), in.Place(), err)
		if !in.flags.skipBad {
			wrong.Err = fmt.Errorf("%w; --skip-bad leaves out what cannot be a job", err)
			return nil, wrong
		}
		if in.bad++; in.bad <= mostBad {
			in.toldOf++
			in.Say("%v: left out", wrong)
		}
	}
}

// mostBad bounds the skipped records that are listed.
const mostBad = 20

func (in *TopicRows) tellSkipped() {
	if in.bad > in.toldOf {
		in.Say("%s: %s more left out", in.Name(), term.Counted(in.bad-in.toldOf, "record"))
		in.toldOf = in.bad
	}
}

// take converts the record to a job.
func (in *TopicRows) take() (err error) {
	in.payload = bytes.TrimSpace(in.record.Value)
	switch {
	case len(in.payload) == 0:
		return errors.New("the record has no value: want one JSON value")
	case len(in.payload) > upload.MaxPayload:
		return fmt.Errorf("the value has %d bytes: a job has at most %d", len(in.payload), upload.MaxPayload)
	}
	if !json.Valid(in.payload) {
		var value json.RawMessage
		return fmt.Errorf("want one JSON value: %w", json.Unmarshal(in.payload, &value))
	}
	if in.whose, err = in.tenant(in.record, in.payload); err != nil {
		return err
	}
	check := bulk.Spec{Tenant: in.whose, Type: "type"}
	if _, err := check.Normalize(); err != nil {
		return fmt.Errorf("%q is not a tenant: %w", term.Clip(in.whose, 40), err)
	}
	return nil
}

// Tenant implements rowSource.
func (in *TopicRows) Tenant() (string, error) { return in.whose, nil }

// Place implements rowSource.
func (in *TopicRows) Place() string {
	return fmt.Sprintf("partition %d, offset %d", in.record.Partition, in.record.Offset)
}

// Progress implements rowInput, in records.
func (in *TopicRows) Progress() (read, size int64) { return in.read, in.size }

// Name returns the name of the input for messages.
func (in *TopicRows) Name() string { return "topic " + in.flags.Topic }
