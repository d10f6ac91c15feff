package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	defaultBroker   = "127.0.0.1:9092"
	brokersVariable = "SLUICE_BROKERS"
)

// The bounds of waiting for brokers.
const (
	// brokerReach is how long the first answer of a broker may take.
	brokerReach = 10 * time.Second
	// brokerPatience is how long one request is tried again.
	brokerPatience = 30 * time.Second
	// brokersAway is how long what several brokers are asked for is asked again, as
	// one of them may just have died; and brokersAgain how long to wait between.
	brokersAway  = 20 * time.Second
	brokersAgain = 500 * time.Millisecond
)

// brokerFlags are those of every command that speaks the Kafka protocol.
type brokerFlags struct {
	brokers []string
	json    bool
}

func (f *brokerFlags) add(command *cobra.Command, jsonUsage string) {
	f.addBrokers(command)
	command.Flags().BoolVar(&f.json, "json", false, jsonUsage)
}

// addBrokers adds --brokers, for commands with a --json of their own.
func (f *brokerFlags) addBrokers(command *cobra.Command) {
	command.Flags().StringSliceVar(&f.brokers, "brokers", nil,
		"`addresses` of Kafka brokers, with commas between them\n(default $"+brokersVariable+", or "+defaultBroker+")")
}

// addresses returns where the brokers are.
func (f *brokerFlags) addresses() ([]string, error) {
	addresses := f.brokers
	if variable := os.Getenv(brokersVariable); len(addresses) == 0 && variable != "" {
		addresses = strings.Split(variable, ",")
	}
	if len(addresses) == 0 {
		addresses = []string{defaultBroker}
	}
	for i, address := range addresses {
		address = strings.TrimSpace(address)
		if host, port, err := net.SplitHostPort(address); err != nil || host == "" || port == "" {
			return nil, wrongUsage("--brokers: %q: want host:port, such as %s", address, defaultBroker)
		}
		addresses[i] = address
	}
	return addresses, nil
}

// cluster is one run of a command that speaks the Kafka protocol.
type cluster struct {
	client   *kgo.Client
	admin    *kadm.Client
	json     bool
	out, err screen
}

// with runs what a command does on the brokers.
func (f *brokerFlags) with(do func(ctx context.Context, c *cluster, args []string) error) func(*cobra.Command, []string) error {
	return func(command *cobra.Command, args []string) error {
		c, err := f.open(command)
		if err != nil {
			return err
		}
		defer c.client.Close()
		return explainKafka(do(command.Context(), c, args))
	}
}

// open connects to the brokers, to be closed.
func (f *brokerFlags) open(command *cobra.Command, options ...kgo.Opt) (*cluster, error) {
	addresses, err := f.addresses()
	if err != nil {
		return nil, err
	}
	client, err := kgo.NewClient(append([]kgo.Opt{
		kgo.SeedBrokers(addresses...), kgo.ClientID("sluice"), kgo.RetryTimeoutFn(retryTimeout), kgo.DialTimeout(brokerReach),
	}, options...)...)
	if err != nil {
		return nil, wrongUsage("%w", err)
	}
	ctx, cancel := context.WithTimeout(command.Context(), brokerReach)
	defer cancel()
	if err := client.Ping(ctx); err != nil {
		client.Close()
		if command.Context().Err() != nil {
			return nil, command.Context().Err()
		}
		return nil, &noBrokerError{strings.Join(addresses, ", "), innermost(err)}
	}
	return &cluster{
		client: client, admin: kadm.NewClient(client), json: f.json,
		out: screenOf(command.OutOrStdout()), err: screenOf(command.ErrOrStderr()),
	}, nil
}

// retryTimeout is how long one request is tried again. Of the groups, each broker
// lists its own: if one alone were asked again later, groups that have moved in
// between would be missing. So that is not: ofAll asks all again.
func retryTimeout(kind int16) time.Duration {
	if kind == kmsg.ListGroups.Int16() {
		return time.Nanosecond // 0 would be without end
	}
	return brokerPatience
}

// ofAll asks several brokers for something, again and again while one of them does
// not answer, or a partition has no leader, for at most brokersAway: soon others have
// what it had. It returns the last error.
func (c *cluster) ofAll(ctx context.Context, ask func() error) error {
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

// noBrokerError says that no broker answered, and how to start one.
type noBrokerError struct {
	addresses string
	err       error
}

func (e *noBrokerError) Error() string {
	return fmt.Sprintf("no broker at %s (%v): start one with \"sluice serve\", or name another with --brokers", e.addresses, e.err)
}

func (e *noBrokerError) Unwrap() error { return e.err }

// writeJSON writes one object on one line.
func (c *cluster) writeJSON(value any) error { return json.NewEncoder(c.out).Encode(value) }

// say tells people something; with --json there are none.
func (c *cluster) say(format string, args ...any) {
	if !c.json {
		fmt.Fprintf(c.err, format+"\n", args...)
	}
}

// answerError is an error that a broker answered with, in its words.
type answerError struct {
	err  error
	text string
}

func (e *answerError) Error() string { return e.text }
func (e *answerError) Unwrap() error { return e.err }

// answered returns the error of a broker with the text that came with it, if any.
func answered(err error, text string) error {
	if err == nil || text == "" {
		return err
	}
	return &answerError{err, text}
}

// askedWrongly are the errors of brokers that say that the flags are wrong.
var askedWrongly = []error{
	kerr.InvalidConfig, kerr.InvalidPartitions, kerr.InvalidReplicationFactor, kerr.InvalidTopicException,
	kerr.TopicAlreadyExists, kerr.InvalidRequest, kerr.PolicyViolation,
}

// explainKafka says in plain words what a broker answered, and makes usage errors
// of what the flags got wrong.
func explainKafka(err error) error {
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
		return wrongUsage("%w", err)
	}
	return err
}

// noTopic says that a topic does not exist.
func noTopic(name string) error {
	return fmt.Errorf(`there is no topic %q; "sluice topic list" shows those there are`, name)
}

// topic returns what the brokers know of a topic.
func (c *cluster) topic(ctx context.Context, name string) (kadm.TopicDetail, error) {
	all, err := c.admin.ListTopicsWithInternal(ctx, name)
	if err != nil {
		return kadm.TopicDetail{}, err
	}
	detail, found := all[name]
	if !found || errors.Is(detail.Err, kerr.UnknownTopicOrPartition) {
		return detail, noTopic(name)
	}
	return detail, detail.Err
}

// configsOf returns the settings of topics.
func (c *cluster) configsOf(ctx context.Context, names ...string) (map[string][]kadm.Config, error) {
	all, err := c.admin.DescribeTopicConfigs(ctx, names...)
	if err != nil {
		return nil, err
	}
	configs := map[string][]kadm.Config{}
	for _, resource := range all {
		if resource.Err != nil && !errors.Is(resource.Err, kerr.UnknownTopicOrPartition) { // deleted meanwhile
			return nil, answered(resource.Err, resource.ErrMessage)
		}
		configs[resource.Name] = resource.Configs
	}
	return configs, nil
}

// valueOfConfig returns the value of one of the settings; empty if there is none.
func valueOfConfig(configs []kadm.Config, name string) string {
	for i := range configs {
		if configs[i].Key == name {
			return configs[i].MaybeValue()
		}
	}
	return ""
}

// oneTopic is for commands that take the name of a topic.
func oneTopic(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return wrongUsage(`give the name of one topic; "sluice topic list" shows them`)
	}
	return nil
}
