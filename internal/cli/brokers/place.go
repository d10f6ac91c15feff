package brokers

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Shift moves an offset forward, or back, within the extent.
func (s Extent) Shift(offset, by int64) int64 {
	offset = s.clamp(offset)
	return offset + min(max(by, s.Start-offset), s.End-offset)
}

// Place is a position in a topic.
type Place struct {
	Kind   placeKind
	offset int64
	at     time.Time
}

type placeKind int

const (
	AtStart placeKind = iota
	atEnd
	AtOffset
	atTime
)

// ParsePlace parses start, end, an offset, a time, or a duration before now.
func ParsePlace(text string, now time.Time) (Place, error) {
	switch text {
	case "start":
		return Place{Kind: AtStart}, nil
	case "end":
		return Place{Kind: atEnd}, nil
	}
	if offset, err := strconv.ParseInt(text, 10, 64); err == nil && offset >= 0 {
		return Place{Kind: AtOffset, offset: offset}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return Place{Kind: atTime, at: at}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return Place{Kind: atTime, at: now.Add(-ago)}, nil
	}
	return Place{}, fmt.Errorf("%q: want start, end, an offset, a time such as 2026-11-28T08:00:00Z, or a duration such as 10m for that long ago", text)
}

// Reset returns the place as the start of a consumer group, for partitions where it
// has committed nothing.
func (p Place) Reset() kgo.Offset {
	switch p.Kind {
	case atEnd:
		return kgo.NewOffset().AtEnd()
	case atTime:
		return kgo.NewOffset().AfterMilli(p.at.UnixMilli())
	default:
		return kgo.NewOffset().AtStart()
	}
}

// Extent is the range of offsets of a partition: from Start up to, not including, End.
type Extent struct{ Start, End int64 }

// clamp moves an offset into the extent.
func (s Extent) clamp(offset int64) int64 { return min(max(offset, s.Start), s.End) }

// Extents returns the present extent of each partition of a topic.
func (c *Client) Extents(ctx context.Context, name string) (map[int32]Extent, error) {
	var starts, ends kadm.ListedOffsets
	if err := c.OfAll(ctx, func() (err error) {
		if starts, err = c.Admin.ListStartOffsets(ctx, name); err == nil {
			ends, err = c.Admin.ListEndOffsets(ctx, name)
		}
		return err
	}); err != nil {
		return nil, err
	}
	extents := map[int32]Extent{}
	for partition, end := range ends[name] {
		start := starts[name][partition]
		if err := errors.Join(start.Err, end.Err); err != nil {
			return nil, fmt.Errorf("%s, partition %d: %w", name, partition, err)
		}
		extents[partition] = Extent{start.Offset, end.Offset}
	}
	return extents, nil
}

// OffsetsOf returns the offset of a place in each partition, within its extent. A
// time is the first record at or after it, or the end.
func (c *Client) OffsetsOf(ctx context.Context, name string, p Place, extents map[int32]Extent) (map[int32]int64, error) {
	offsets := map[int32]int64{}
	for partition, has := range extents {
		switch p.Kind {
		case AtStart:
			offsets[partition] = has.Start
		case atEnd, atTime:
			offsets[partition] = has.End
		case AtOffset:
			offsets[partition] = has.clamp(p.offset)
		}
	}
	if p.Kind != atTime {
		return offsets, nil
	}
	var listed kadm.ListedOffsets
	if err := c.OfAll(ctx, func() (err error) {
		listed, err = c.Admin.ListOffsetsAfterMilli(ctx, p.at.UnixMilli(), name)
		return err
	}); err != nil {
		return nil, err
	}
	for partition, has := range extents {
		if at := listed[name][partition]; at.Err != nil {
			return nil, fmt.Errorf("%s, partition %d: %w", name, partition, at.Err)
		} else if at.Offset >= 0 {
			offsets[partition] = has.clamp(at.Offset)
		}
	}
	return offsets, nil
}

// Committed returns the offset that a group has committed in each partition; -1 if there is none.
func Committed[V any](ctx context.Context, c *Client, group, name string, partitions map[int32]V) (map[int32]int64, error) {
	committed := make(map[int32]int64, len(partitions))
	for partition := range partitions {
		committed[partition] = -1
	}
	return committed, c.AddCommitted(ctx, group, name, committed)
}

// AddCommitted sets the offsets that a group has committed in a topic.
func (c *Client) AddCommitted(ctx context.Context, group, name string, begins map[int32]int64) error {
	committed, err := c.Admin.FetchOffsets(ctx, group)
	if err != nil {
		return err
	}
	for partition := range begins {
		offset, found := committed.Lookup(name, partition)
		if found && offset.Err == nil && offset.At >= 0 {
			begins[partition] = offset.At
		}
	}
	return nil
}
