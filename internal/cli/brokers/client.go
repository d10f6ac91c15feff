package brokers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/sluice-project/sluice/internal/cli/exit"
	"github.com/sluice-project/sluice/internal/cli/profile"
	"github.com/sluice-project/sluice/internal/cli/term"
	"github.com/sluice-project/sluice/internal/cli/trust"
)

// The states of groups that commands distinguish.
const (
	GroupStable = "Stable"
	GroupEmpty  = "Empty"
	GroupDead   = "Dead"
)

// Bounds of waiting for brokers.
const (
	// brokerReach bounds the first answer of a broker.
	brokerReach = 10 * time.Second
	// BrokerPatience bounds the retries of one request.
	BrokerPatience = 30 * time.Second
	// brokersAway bounds the retries of requests to several brokers, of which one may
	// just have died; brokersAgain is the pause between them.
	brokersAway  = 20 * time.Second
	brokersAgain = 500 * time.Millisecond
)

// Flags are the flags of every command that uses the Kafka protocol.
type Flags struct{ JSON bool }

func (f *Flags) Add(command *cobra.Command, jsonUsage string) {
	f.AddBrokers(command)
	command.Flags().BoolVar(&f.JSON, "json", false, jsonUsage)
}

// AddBrokers adds --brokers, for commands that define --json themselves.
func (f *Flags) AddBrokers(command *cobra.Command) {
	command.Flags().StringSlice(profile.Brokers, nil,
		"`addresses` of Kafka brokers, with commas between them\n(default $"+profile.BrokersVariable+", or "+profile.DefaultBroker+")")
	command.Flags().Bool(profile.TLS, false, "connect to the brokers with TLS; --ca and --client-cert imply it")
	trust.Add(command)
}

// secure returns the configuration of TLS, nil without it.
func secure(of profile.Connection) (*tls.Config, error) {
	config, err := trust.TLS(of)
	if err == nil && config == nil && of[profile.TLS] == "true" {
		config = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	return config, err
}

// Client is a client of Kafka brokers, for one run of a command.
type Client struct {
	term.Output
	Kafka *kgo.Client
	Admin *kadm.Client
}

// Command gives a command the flags of brokers, and runs do with a client of them.
func Command(command *cobra.Command, jsonUsage string, do func(ctx context.Context, c *Client, args []string) error) *cobra.Command {
	var f Flags
	f.Add(command, jsonUsage)
	command.RunE = f.With(do)
	return command
}

// DeleteCommand gives a command that deletes what its arguments name, a topic or a group each.
func DeleteCommand(command *cobra.Command, noun string, del func(ctx context.Context, c *Client, name string) error) *cobra.Command {
	command.Args = exit.Between(1, math.MaxInt, fmt.Sprintf(`give the names of %ss; "sluice %s list" shows them`, noun, noun))
	return Command(command, "print JSON", func(ctx context.Context, c *Client, args []string) error {
		for _, name := range args {
			if err := del(ctx, c, name); err != nil {
				return err
			}
			deleted := struct {
				Topic   string `json:"topic,omitempty"`
				Group   string `json:"group,omitempty"`
				Deleted bool   `json:"deleted"`
			}{term.If(noun == "topic", name), term.If(noun == "group", name), true}
			if err := c.Tell(deleted, "%s deleted", name); err != nil {
				return err
			}
		}
		return nil
	})
}

// With runs do with a client of the brokers that the flags name.
func (f *Flags) With(do func(ctx context.Context, c *Client, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		c, err := f.Open(command)
		if err != nil {
			return err
		}
		defer c.Kafka.Close()
		return Explain(do(command.Context(), c, args))
	}
}

// Open connects to the brokers. The caller closes the client.
func (f *Flags) Open(command *cobra.Command, options ...kgo.Opt) (*Client, error) {
	of, err := profile.Of(command)
	if err != nil {
		return nil, err
	}
	addresses, err := of.BrokerAddresses()
	if err != nil {
		return nil, err
	}
	secure, err := secure(of)
	if err != nil {
		return nil, err
	}
	account, err := login(of, secure != nil)
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.DialTLSConfig(secure), kgo.SASL(account...), kgo.SeedBrokers(addresses...), kgo.ClientID("sluice"), kgo.RetryTimeoutFn(retryTimeout), kgo.DialTimeout(brokerReach),
	}, options...)...)
	if err != nil {
		return nil, exit.Usage("%w", err)
	}
	ctx, cancel := context.WithTimeout(command.Context(), brokerReach)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		client.Close()
		if command.Context().Err() != nil {
			return nil, command.Context().Err()
		}
		if err := refused(err); err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("no broker at %s (%w): start one with \"sluice serve\", or name another with --brokers",
			strings.Join(addresses, ", "), exit.Innermost(err))
	}
	return &Client{term.OutputOf(command, f.JSON), client, kadm.NewClient(client)}, nil
}

// retryTimeout bounds the retries of one request. ListGroups is not retried by itself: each broker
// lists its own groups, and a retry of one broker would miss groups that have moved in the
// meantime. OfAll repeats all requests.
func retryTimeout(kind int16) time.Duration {
	if kind == kmsg.ListGroups.Int16() {
		return time.Nanosecond // 0 would be unbounded
	}
	return BrokerPatience
}

// OfAll calls ask, which makes requests to several brokers, and retries it while one of
// them does not answer or a partition has no leader, for at most brokersAway. It returns
// the last error.
func (c *Client) OfAll(ctx context.Context, ask func() error) error {
	ctx, cancel := context.WithTimeout(ctx, brokersAway)
	defer cancel()
	for {
		err := ask()
		var shards *kadm.ShardErrors
		if err == nil || !errors.As(err, &shards) {
			return err
		}
		var answered *kerr.Error
		if errors.As(err, &answered) && !answered.Retriable {
			return err
		}
		select {
		case <-time.After(brokersAgain):
		case <-ctx.Done():
			return err
		}
	}
}

// answerError is the error of a broker with its own text.
type answerError struct {
	err  error
	text string
}

func (e *answerError) Error() string { return e.text }

func (e *answerError) Unwrap() error { return e.err }

// Answered returns the error of a broker with the text of its answer, if any.
func Answered(err error, text string) error {
	if err == nil || text == "" {
		return err
	}
	return &answerError{err, text}
}

// askedWrongly are the errors of brokers that are usage errors.
var askedWrongly = []error{
	kerr.InvalidConfig, kerr.InvalidPartitions, kerr.InvalidReplicationFactor, kerr.InvalidTopicException,
	kerr.TopicAlreadyExists, kerr.InvalidRequest, kerr.PolicyViolation,
}

// Explain returns the error of a broker in plain words; it is a usage error if the flags
// were wrong.
func Explain(err error) error {
	var known *kerr.Error
	var told *answerError
	switch {
	case !errors.As(err, &known):
		return err
	case errors.As(err, &told):
	default:
		plain := strings.TrimSuffix(known.Description, ".")
		plain = strings.ToLower(plain[:min(1, len(plain))]) + plain[min(1, len(plain)):]
		err = &answerError{err, strings.Replace(err.Error(), known.Error(), plain, 1)}
	}
	if slices.Contains(askedWrongly, error(known)) {
		return exit.Usage("%w", err)
	}
	return err
}

// Unauthorized reports whether an error is that of a broker whose account lacks a right.
func Unauthorized(err error) bool {
	return slices.ContainsFunc([]error{
		kerr.ClusterAuthorizationFailed, kerr.TopicAuthorizationFailed, kerr.GroupAuthorizationFailed, kerr.TransactionalIDAuthorizationFailed,
	}, func(code error) bool { return errors.Is(err, code) })
}

// Topic returns the metadata of a topic.
func (c *Client) Topic(ctx context.Context, name string) (kadm.TopicDetail, error) {
	all, err := c.Admin.ListTopicsWithInternal(ctx, name)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	detail, found := all[name]
	if !found || errors.Is(detail.Err, kerr.UnknownTopicOrPartition) {
		return detail, fmt.Errorf(`there is no topic %q; "sluice topic list" shows those there are`, name)
	}
	return detail, detail.Err
}

// ConfigsOf returns the settings of topics.
func (c *Client) ConfigsOf(ctx context.Context, names ...string) (map[string][]kadm.Config, error) {
	all, err := c.Admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, err
	}
	configs := map[string][]kadm.Config{}
	for _, resource := range all {
		if resource.Err != nil && !errors.Is(resource.Err, kerr.UnknownTopicOrPartition) { // deleted in the meantime
			return nil, Answered(resource.Err, resource.ErrMessage)
		}
		configs[resource.Name] = resource.Configs
	}
	return configs, nil
}

// ValueOfConfig returns the value of one of the settings; empty if there is none.
func ValueOfConfig(configs []kadm.Config, name string) string {
	for i := range configs {
		if configs[i].Key == name {
			return configs[i].MaybeValue()
		}
	}
	return ""
}

// CommitPatience is how long a commit may take, after Ctrl-C too.
const CommitPatience = 10 * time.Second
