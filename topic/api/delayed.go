package api

import (
	"context"
	"time"
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
	return out, nil
}

type inCancel struct {
	Topic string `path:"topic" maxLength:"249" doc:"The name of a topic."`
	ID    string `path:"id" maxLength:"256" doc:"The id of a delayed record."`
}

// cancel cancels a record, on whatever node it waits.
func (s *server) cancel(ctx context.Context, in *inCancel) error {
	return s.broker.CancelDelayed(ctx, in.Topic, in.ID)
}
