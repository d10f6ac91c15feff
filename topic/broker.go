package topic

import (
	"context"
	"log/slog"
)

// Broker is all topics of one node. It is a lifecycle.Service.
type Broker struct{}

// Option changes how a broker is made.
type Option func(*Broker)

// WithLogger sets where the broker logs; default: nowhere.
func WithLogger(log *slog.Logger) Option { panic("contract") }

// New returns a broker over a store, to be started.
func New(store Store, config Config, options ...Option) (*Broker, error) { panic("contract") }

func (b *Broker) Name() string                    { panic("contract") }
func (b *Broker) Start(ctx context.Context) error { panic("contract") }
func (b *Broker) Stop(ctx context.Context) error  { panic("contract") }
func (b *Broker) Failed() <-chan struct{}         { panic("contract") }
func (b *Broker) Err() error                      { panic("contract") }

// Node returns this broker's number, and ClusterID the cluster's identity.
func (b *Broker) Node() int32       { panic("contract") }
func (b *Broker) ClusterID() string { panic("contract") }

// Config returns the broker's settings.
func (b *Broker) Config() Config { panic("contract") }

// Groups returns the coordinator of the consumer groups.
func (b *Broker) Groups() *Groups { panic("contract") }

// Topics returns all topics, by name.
func (b *Broker) Topics() []*Topic { panic("contract") }

// Topic returns the topic of that name, or ErrNoTopic; TopicByID that of an id.
func (b *Broker) Topic(name string) (*Topic, error) { panic("contract") }
func (b *Broker) TopicByID(id ID) (*Topic, error)   { panic("contract") }

// Create makes a topic. With dryRun it only checks. Errors: ErrTopicExists,
// ErrInvalidName, ErrInvalidSetting, ErrInvalidPartitions, ErrInvalidReplicas, all
// wrapped with what was wrong.
func (b *Broker) Create(ctx context.Context, spec Spec, dryRun bool) (*Topic, error) {
	panic("contract")
}

// AutoCreate returns the topic of that name, made with the defaults if it does not exist.
func (b *Broker) AutoCreate(ctx context.Context, name string) (*Topic, error) { panic("contract") }

// Delete removes a topic and its records. ErrNoTopic; ErrHasViews.
func (b *Broker) Delete(ctx context.Context, name string) error { panic("contract") }

// AddPartitions raises the number of a topic's partitions to count.
func (b *Broker) AddPartitions(ctx context.Context, name string, count int32, dryRun bool) error {
	panic("contract")
}

// Alter changes settings of a topic: those with a value are set, those with nil
// fall back to the default; with replace, all that are not named fall back.
func (b *Broker) Alter(ctx context.Context, name string, settings map[string]*string, replace, dryRun bool) error {
	panic("contract")
}

// NewProducerID returns an id that no other producer has or had.
func (b *Broker) NewProducerID(ctx context.Context) (int64, error) { panic("contract") }
