package events

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

	"github.com/sluice-project/sluice/topic"
	"github.com/sluice-project/sluice/topic/broker"
)

// Bounds of the search for events that the topic already has.
const (
	// eventScanBytes bounds how much of each partition is read.
	eventScanBytes = 64 << 20
	// eventLookBack is how many of a partition's last offsets are read in any case: more
	// than are published together. If the clock was set back, records are older than
	// their events.
	eventLookBack  = 10_000
	eventReadBytes = 1 << 20
)

// search returns which of the events the topic has.
func (p *publisher) search(ctx context.Context, to *broker.Topic, events []occurrence) (map[string]bool, error) {
	wanted := idsOf(events)
	oldest := slices.MinFunc(events, func(a, b occurrence) int { return a.at.Compare(b.at) }).at
	found := map[string]bool{}
	places, err := p.to.find(ctx, to, min(oldest.UnixMilli(), time.Now().UnixMilli()))
	if err != nil {
		return nil, err
	}
	for number, at := range places {
		offset, last := at.offset, max(at.start, at.end-eventLookBack)
		if offset < 0 || offset > last {
			offset = last
		}
		if err := p.scan(ctx, to, int32(number), offset, func(id string) {
			if wanted[id] {
				found[id] = true
			}
		}); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// scan calls see with the id of each event of a partition from an offset on.
func (p *publisher) scan(ctx context.Context, to *broker.Topic, number int32, offset int64, see func(id string)) error {
	for read := 0; read < eventScanBytes; {
		fetched, err := p.to.read(ctx, to, number, offset)
		if errors.Is(err, topic.ErrOffsetOutOfRange) && offset < fetched.Start { // retention was faster
			offset = fetched.Start
			continue
		}
		if err != nil || len(fetched.Data) == 0 {
			return err
		}
		for _, piece := range fetched.Data {
			batches, err := topic.SplitBatches(piece)
			if err != nil {
				return err
			}
			for _, batch := range batches {
				if err := p.seeEvents(batch, see); err != nil {
					return err
				}
				offset = batch.Next()
			}
		}
		read += fetched.Size
	}
	p.log.Warn("more was written to the topic of events than is searched: events of before a crash may be there twice, with the same id",
		"topic", p.name, "partition", number, "bytes", eventScanBytes)
	return nil
}

// seeEvents calls see with the ids of a batch's events. Records of other sources are
// ignored.
func (p *publisher) seeEvents(batch topic.Batch, see func(id string)) error {
	if batch.Control() {
		return nil
	}
	for record, err := range batch.Records() {
		if err != nil {
			return err
		}
		var event struct{ ID, Source string }
		if json.Unmarshal(record.Value, &event) == nil && event.Source == p.source {
			see(event.ID)
		}
	}
	return nil
}
