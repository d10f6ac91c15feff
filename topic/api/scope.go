package api

import (
	"context"
	"fmt"
	"slices"

	"github.com/sluice-project/sluice/access"
	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
	"github.com/sluice-project/sluice/topic/delay"
	"github.com/sluice-project/sluice/topic/group"
)

// scoped is a broker as the sender of a request sees it: topics and groups beyond the sender's limits do not exist.
// Other operations are for those who have no limits.
type scoped struct{ Broker }

// Delayed implements Broker.
func (s scoped) Delayed(ctx context.Context, name string, limit int) ([]delay.Waiting, error) {
	if !access.From(ctx).Topic(name) {
		return nil, fmt.Errorf("%w: %q", topic.ErrNoTopic, name)
	}
	return s.Broker.Delayed(ctx, name, limit)
}

// CancelDelayed implements Broker.
func (s scoped) CancelDelayed(ctx context.Context, name, id string) error {
	if !access.From(ctx).Topic(name) {
		return fmt.Errorf("%w: %q", topic.ErrNoTopic, name)
	}
	return s.Broker.CancelDelayed(ctx, name, id)
}

// GroupLag implements Broker.
func (s scoped) GroupLag(ctx context.Context, name string) ([]broker.Lag, error) {
	sender := access.From(ctx)
	if !sender.Group(name) {
		return nil, fmt.Errorf("%w: %q", group.ErrNoGroup, name)
	}
	lags, err := s.Broker.GroupLag(ctx, name)
	return slices.DeleteFunc(lags, func(lag broker.Lag) bool { return !sender.Topic(lag.Topic) }), err
}
