package api

import "context"

// Group is a consumer group, and how far it has read.
type Group struct {
	Group      string           `json:"group" doc:"Its name."`
	Lag        int64            `json:"lag" doc:"The sum of the partitions' lag, as far as it is known."`
	Partitions []GroupPartition `json:"partitions" nullable:"false" doc:"The partitions in which it has committed an offset, by topic and number."`
}

// GroupPartition is how far a group has read a partition.
type GroupPartition struct {
	Topic     string `json:"topic"`
	Partition int32  `json:"partition"`
	Committed int64  `json:"committed" doc:"The offset that it has committed: that of the next record to read."`
	End       *int64 `json:"end" doc:"The offset after the last record; null if the partition has no leader now, or its leader does not answer."`
	Lag       *int64 `json:"lag" doc:"Offsets from committed to end; null if end is."`
}

type inGroup struct {
	Group string `path:"group" maxLength:"255" doc:"The name of a consumer group."`
}

type outGroup struct{ Body Group }

// group tells how far a group has read, whatever nodes coordinate it and lead the partitions.
func (s *server) group(ctx context.Context, in *inGroup) (*outGroup, error) {
	lags, err := s.broker.GroupLag(ctx, in.Group)
	if err != nil {
		return nil, err
	}
	out := &outGroup{Body: Group{Group: in.Group, Partitions: make([]GroupPartition, 0, len(lags))}}
	for _, lag := range lags {
		partition := GroupPartition{Topic: lag.Topic, Partition: lag.Partition, Committed: lag.Committed}
		if lag.End >= 0 {
			partition.End, partition.Lag = &lag.End, &lag.Lag
			out.Body.Lag += lag.Lag
		}
		out.Body.Partitions = append(out.Body.Partitions, partition)
	}
	return out, nil
}
