package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/sluice-project/sluice/topic"
)

// Delayed is a record that waits until it is due.
type Delayed struct {
	ID        string    `json:"id" doc:"The id to cancel it by: its header sluice-id, or a generated one."`
	Partition int32     `json:"partition" doc:"The partition in which it will appear."`
	DeliverAt time.Time `json:"deliver_at" doc:"When it is due."`
}

// DelayedList are records that wait.
type DelayedList struct {
	Delayed []Delayed `json:"delayed" nullable:"false" doc:"By the time when they are due."`
}

type inDelayed struct {
	Forwardable
	Topic string `path:"topic" maxLength:"249" doc:"The name of a topic."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most records of the answer."`
}

type outDelayed struct{ Body DelayedList }

// delayed lists the records of all partitions, on whatever node their leader is.
func (s *server) delayed(ctx context.Context, in *inDelayed) (*outDelayed, error) {
	records, err := s.broker.Delayed(ctx, in.Topic, in.Limit)
	if err != nil {
		return nil, err
	}
	out := &outDelayed{Body: DelayedList{Delayed: make([]Delayed, 0, len(records))}}
	for _, record := range records {
		out.Body.Delayed = append(out.Body.Delayed, Delayed{record.ID, record.Partition, record.DeliverAt.UTC()})
	}
	if in.forwarded() {
		return out, nil
	}
	leaders, err := s.otherLeaders(in.Topic)
	if err != nil {
		return nil, err
	}
	lists := make([]DelayedList, len(leaders))
	path := "/v1/topics/" + url.PathEscape(in.Topic) + "/delayed?limit=" + strconv.Itoa(in.Limit)
	err = s.forwardAll(ctx, leaders, func(ctx context.Context, i int) error {
		return s.forward(ctx, leaders[i], http.MethodGet, path, &lists[i])
	})
	if err != nil {
		return nil, err
	}
	for _, list := range lists {
		out.Body.Delayed = append(out.Body.Delayed, list.Delayed...)
	}
	slices.SortStableFunc(out.Body.Delayed, func(x, y Delayed) int { return x.DeliverAt.Compare(y.DeliverAt) })
	out.Body.Delayed = out.Body.Delayed[:min(in.Limit, len(out.Body.Delayed))]
	return out, nil
}

type inCancel struct {
	Forwardable
	Topic string `path:"topic" maxLength:"249" doc:"The name of a topic."`
	ID    string `path:"id" maxLength:"256" doc:"The id of a delayed record."`
}

// cancel cancels a record where it waits: here, or at the first other node that has
// it.
func (s *server) cancel(ctx context.Context, in *inCancel) error {
	err := s.broker.CancelDelayed(ctx, in.Topic, in.ID)
	switch {
	case err == nil:
		return nil
	case !isAny(err, topic.ErrNotFound, topic.ErrNotLeader):
		return err
	}
	notFound := err
	if errors.Is(err, topic.ErrNotLeader) { // no partition that this node leads has it
		notFound = fmt.Errorf("delayed record %q of %s: %w", in.ID, in.Topic, topic.ErrNotFound)
	}
	if in.forwarded() {
		return notFound
	}
	leaders, without := s.otherLeaders(in.Topic)
	path := "/v1/topics/" + url.PathEscape(in.Topic) + "/delayed/" + url.PathEscape(in.ID)
	for _, leader := range leaders {
		switch there := s.forward(ctx, leader, http.MethodDelete, path, nil); {
		case there == nil:
			return nil
		case !errors.Is(there, topic.ErrNotFound):
			// It may be the one that has it.
			without = errors.Join(without, fmt.Errorf("delayed record %q was not found elsewhere: %w", in.ID, there))
		}
	}
	if without != nil {
		return without
	}
	return notFound
}
