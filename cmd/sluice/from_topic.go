package main

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
)

// fromTopicLong is what the commands that take jobs from a topic say of it.
const fromTopicLong = `With --from-topic the jobs are the records that TOPIC has at the start, up to
--until: the value of each is one JSON value. The tenant is a field of it
(--tenant-field), a header (--tenant-header) or the key (--tenant-key). With --group
each record is taken once: the command begins where the group's offsets are, notes
in them what it takes before it takes anything, and moves them on at the end. After
a kill the same command goes on with the same records. What that promises is in
docs/bulk/from-topic.md. Without --group all records are taken, and nothing is noted.

A record that cannot be a job ends the command before anything has run, with its
partition and offset; --skip-bad leaves it out and names it.`

// fromTopicFlags are those of commands that take jobs from a topic.
type fromTopicFlags struct {
	brokerFlags
	topic, group, until string
	field, header       string
	key, skipBad        bool
}

// fromTopicOnly are the flags that say nothing without --from-topic.
var fromTopicOnly = []string{"brokers", "group", "until", "tenant-field", "tenant-header", "tenant-key", "skip-bad"}

func (f *fromTopicFlags) add(command *cobra.Command) {
	flags := command.Flags()
	flags.StringVar(&f.topic, "from-topic", "", "take the records of this `topic` as jobs, in place of a file")
	flags.StringVar(&f.group, "group", "", "with --from-topic: take what this consumer `group` has not, each record once")
	flags.StringVar(&f.until, "until", "end", "with --from-topic: take the records before this `place`: end, an offset, a time\nsuch as 2026-11-28T08:00:00Z, or a duration such as 10m for that long ago")
	flags.StringVar(&f.field, "tenant-field", "", "with --from-topic: the `field` of the value that names the tenant")
	flags.StringVar(&f.header, "tenant-header", "", "with --from-topic: the `header` that names the tenant; the last of that name")
	flags.BoolVar(&f.key, "tenant-key", false, "with --from-topic: the record's key names the tenant")
	flags.BoolVar(&f.skipBad, "skip-bad", false, "with --from-topic: leave out the records that cannot be jobs")
	f.addBrokers(command)
}

// args is for commands that take either a file or --from-topic.
func (f *fromTopicFlags) args(command *cobra.Command, args []string) error {
	if f.topic == "" {
		for _, name := range fromTopicOnly {
			if command.Flags().Changed(name) {
				return wrongUsage("--%s is for jobs from a topic: give --from-topic TOPIC too", name)
			}
		}
		return oneFile(command, args)
	}
	if len(args) > 0 {
		return wrongUsage("give either a file or --from-topic, not both")
	}
	return nil
}

// check checks the flags of a command that takes jobs from a topic. Whose jobs
// they are may be said by one flag: those here, and other, if it is not empty.
func (f *fromTopicFlags) check(column, other string) (place, error) {
	named := 0
	for _, given := range []bool{f.field != "", f.header != "", f.key, other != ""} {
		if given {
			named++
		}
	}
	switch {
	case column != "":
		return place{}, wrongUsage("--tenant-column is for files: with --from-topic give --tenant-field, --tenant-header or --tenant-key")
	case named != 1:
		return place{}, wrongUsage("say whose job a record is, by one of --tenant-field, --tenant-header and --tenant-key")
	}
	until, err := parsePlace(f.until, time.Now())
	if err == nil && until.kind == atStart {
		err = errors.New("want what lies after the start")
	}
	if err != nil {
		return place{}, wrongUsage("--until: %w", err)
	}
	return until, nil
}

// tenantOf returns how the tenant of a record is found; all are those of one
// tenant, if it is given.
func (f *fromTopicFlags) tenantOf(one string) func(*kgo.Record, []byte) (string, error) {
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

// topicInput is the records of a topic as the rows of an intake.
type topicInput struct {
	*cluster
	flags  *fromTopicFlags
	until  place
	tenant func(*kgo.Record, []byte) (string, error)
	// as tells one command from another, for a run that is gone on with.
	as string
	// instance is the group's member, if nobody else can be the same one at the
	// same time; empty if not known.
	instance string
	join     func(options ...kgo.Opt) (*cluster, error)
	member   *cluster // in the group

	plan *topicPlan
	// left are the partitions that have not been read, in order. Fetch reads the
	// first of them from next on.
	left  []takenPartition
	fetch func(takenPartition) ([]*kgo.Record, int64, error)
	ahead []*kgo.Record

	record      *kgo.Record // the last one, its payload and its tenant
	payload     []byte
	whose       string
	read, size  int64
	bad, toldOf int64
}

// topicSource is where an input comes from, and for whom.
type topicSource struct {
	flags  *fromTopicFlags
	until  place
	tenant string // of all records; empty: they say
	// spec and where are what a run that is gone on with must have in common: the
	// jobs, and who takes them.
	spec  bulk.Spec
	where string
	// instance is the group's member; see topicInput.
	instance string
}

// memberOf names the group's member that takes for somebody.
func memberOf(where string) string {
	digest := sha256.Sum256([]byte(where))
	return "sluice-bulk-" + hex.EncodeToString(digest[:8])
}

// open connects to the brokers, and looks for the topic.
func (s *topicSource) open(command *cobra.Command) (*topicInput, error) {
	f := s.flags
	as, err := json.Marshal([]any{s.spec, s.where, s.tenant, f.field, f.header, f.key})
	if err != nil {
		return nil, err
	}
	digest := sha256.Sum256(as)
	c, err := f.open(command)
	if err != nil {
		return nil, err
	}
	if _, err := c.topic(command.Context(), f.topic); err != nil {
		c.client.Close()
		return nil, explainKafka(err)
	}
	return &topicInput{
		cluster: c, flags: f, until: s.until, tenant: f.tenantOf(s.tenant), as: hex.EncodeToString(digest[:8]), instance: s.instance,
		join: func(options ...kgo.Opt) (*cluster, error) { return f.open(command, options...) },
	}, nil
}

// Close leaves the group, and the brokers.
func (in *topicInput) Close() error {
	if in.member != nil {
		in.leave()
		in.member.client.Close()
	}
	in.client.Close()
	return nil
}

// begin says what is to be taken, and notes it in the group.
func (in *topicInput) begin(ctx context.Context) error {
	if in.flags.group != "" {
		if err := in.enter(ctx); err != nil {
			return explainKafka(err)
		}
	}
	if err := in.makePlan(ctx); err != nil {
		return explainKafka(err)
	}
	in.left = in.plan.unread()
	for _, p := range in.left {
		in.size += p.end - p.next
	}
	in.fetch = func(p takenPartition) ([]*kgo.Record, int64, error) { return in.read1(ctx, p) }
	return nil
}

// empty tells whether there is nothing to take.
func (in *topicInput) empty() bool { return in.size == 0 }

// resumes tells whether the same command goes on after a failure.
func (in *topicInput) resumes() bool { return in != nil && in.plan != nil && in.plan.Run != "" }

// vary gives an action the id that it has in each attempt of the run.
func (in *topicInput) vary(spec *bulk.Spec) {
	if in.plan.Run != "" {
		of := sha256.Sum256([]byte(spec.Tenant))
		spec.ID = "topic-" + in.plan.Run + "-" + hex.EncodeToString(of[:10])
	}
}

// topicError is a failure to read, which says nothing of the records.
type topicError struct{ error }

func (e *topicError) Unwrap() error { return e.error }

// Next implements rowSource.
func (in *topicInput) Next() ([]byte, error) {
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
		wrong := &inputError{in.name(), in.Place(), err}
		if !in.flags.skipBad {
			wrong.Err = fmt.Errorf("%w; --skip-bad leaves out what cannot be a job", err)
			return nil, wrong
		}
		if in.bad++; in.bad <= mostBad {
			in.toldOf++
			in.say("%v: left out", wrong)
		}
	}
}

// mostBad is how many records that are left out are named.
const mostBad = 20

func (in *topicInput) tellSkipped() {
	if in.bad > in.toldOf {
		in.say("%s: %s more left out", in.name(), counted(in.bad-in.toldOf, "record"))
		in.toldOf = in.bad
	}
}

// take makes a job of the record.
func (in *topicInput) take() (err error) {
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
		return fmt.Errorf("%q is not a tenant: %w", clip(in.whose, 40), err)
	}
	return nil
}

// Tenant implements rowSource.
func (in *topicInput) Tenant() (string, error) { return in.whose, nil }

// Place implements rowSource.
func (in *topicInput) Place() string {
	return fmt.Sprintf("partition %d, offset %d", in.record.Partition, in.record.Offset)
}

// Progress implements rowInput, in records.
func (in *topicInput) Progress() (read, size int64) { return in.read, in.size }

// name is how the input is named to people.
func (in *topicInput) name() string { return "topic " + in.flags.topic }
