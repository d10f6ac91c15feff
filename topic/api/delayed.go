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
	ID        string    `json:"id" doc:"What it is canceled by: its header sluice-id, or made for it."`
	Partition int32     `json:"partition" doc:"Where it will appear."`
	DeliverAt time.Time `json:"deliver_at" doc:"When it is due."`
}

// DelayedList are records that wait.
type DelayedList struct {
	Delayed []Delayed `json:"delayed" nullable:"false" doc:"Those first that are due first."`
}

type inDelayed struct {
	Forwardable
	Topic string `path:"topic" maxLength:"249" doc:"The name of a topic."`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"100" doc:"The most records of the answer."`
}

type outDelayed struct{ Body DelayedList }

// delayed lists the records of all partitions: those that this node leads, and
// those that others do.
func (s *server) delayed(ctx context.Context, in *inDelayed) (*outDelayed, error) {
	records, err := s.broker.Delayed(ctx, in.Topic, in.Limit)
	if err != nil {
		return nil, s.refuse(ctx, err)
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
		return nil, s.refuse(ctx, err)
	}
	lists := make([]DelayedList, len(leaders))
	path := "/v1/topics/" + url.PathEscape(in.Topic) + "/delayed?limit=" + strconv.Itoa(in.Limit)
	err = s.forwardAll(ctx, leaders, func(ctx context.Context, i int) error {
		return s.forward(ctx, leaders[i], http.MethodGet, path, &lists[i])
	})
	if err != nil {
		return nil, s.refuse(ctx, err)
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

// cancel takes a record out where it waits: here, or at the first of the others
// that has it.
func (s *server) cancel(ctx context.Context, in *inCancel) (*struct{}, error) {
	err := s.broker.CancelDelayed(ctx, in.Topic, in.ID)
	switch {
	case err == nil:
		return nil, nil
	case !isAny(err, topic.ErrNotFound, topic.ErrNotLeader):
		return nil, s.refuse(ctx, err)
	}
	notFound := err
	if errors.Is(err, topic.ErrNotLeader) { // what this node leads has it not
		notFound = fmt.Errorf("delayed record %q of %s: %w", in.ID, in.Topic, topic.ErrNotFound)
	}
	if in.forwarded() {
		return nil, s.refuse(ctx, notFound)
	}
	leaders, without := s.otherLeaders(in.Topic)
	path := "/v1/topics/" + url.PathEscape(in.Topic) + "/delayed/" + url.PathEscape(in.ID)
	for _, leader := range leaders {
		switch there := s.forward(ctx, leader, http.MethodDelete, path, nil); {
		case there == nil:
			return nil, nil
		case !errors.Is(there, topic.ErrNotFound):
			// It may be the one that has it.
			without = errors.Join(without, fmt.Errorf("delayed record %q was not found elsewhere: %w", in.ID, there))
		}
	}
	if without != nil {
		return nil, s.refuse(ctx, without)
	}
	return nil, s.refuse(ctx, notFound)
}
