package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// place is where in a topic to begin.
type place struct {
	kind   placeKind
	offset int64
	at     time.Time
}

type placeKind int

const (
	atStart placeKind = iota
	atEnd
	atOffset
	atTime
)

// parsePlace reads start, end, an offset, a time, or how long before now.
func parsePlace(text string, now time.Time) (place, error) {
	switch text {
	case "start":
		return place{kind: atStart}, nil
	case "end":
		return place{kind: atEnd}, nil
	}
	if offset, err := strconv.ParseInt(text, 10, 64); err == nil && offset >= 0 {
		return place{kind: atOffset, offset: offset}, nil
	}
	if at, err := time.Parse(time.RFC3339, text); err == nil {
		return place{kind: atTime, at: at}, nil
	}
	if ago, err := time.ParseDuration(text); err == nil && ago >= 0 {
		return place{kind: atTime, at: now.Add(-ago)}, nil
	}
	return place{}, fmt.Errorf("%q: want start, end, an offset, a time such as 2026-11-28T08:00:00Z, or a duration such as 10m for that long ago", text)
}

// reset is the place as a consumer group takes it, for partitions where it has
// committed nothing.
func (p place) reset() kgo.Offset {
	switch p.kind {
	case atEnd:
		return kgo.NewOffset().AtEnd()
	case atTime:
		return kgo.NewOffset().AfterMilli(p.at.UnixMilli())
	default:
		return kgo.NewOffset().AtStart()
	}
}

// extent is what a partition has: from Start up to, not including, End.
type extent struct{ Start, End int64 }

// clamp moves an offset into the extent.
func (s extent) clamp(offset int64) int64 { return min(max(offset, s.Start), s.End) }

// extents returns what each partition of a topic has now.
func (c *cluster) extents(ctx context.Context, name string) (map[int32]extent, error) {
	var starts, ends kadm.ListedOffsets
	if err := c.ofAll(ctx, func() (err error) {
		if starts, err = c.admin.ListStartOffsets(ctx, name); err == nil {
			ends, err = c.admin.ListEndOffsets(ctx, name)
		}
		return err
	}); err != nil {
		return nil, err
	}
	extents := map[int32]extent{}
	for partition, end := range ends[name] {
		start := starts[name][partition]
		if err := errors.Join(start.Err, end.Err); err != nil {
			return nil, fmt.Errorf("%s, partition %d: %w", name, partition, err)
		}
		extents[partition] = extent{start.Offset, end.Offset}
	}
	return extents, nil
}

// offsetsOf returns the place in each partition, which is never outside of what
// there is. A time is the first record at or after it, or the end.
func (c *cluster) offsetsOf(ctx context.Context, name string, p place, extents map[int32]extent) (map[int32]int64, error) {
	offsets := map[int32]int64{}
	for partition, has := range extents {
		switch p.kind {
		case atStart:
			offsets[partition] = has.Start
		case atEnd, atTime:
			offsets[partition] = has.End
		case atOffset:
			offsets[partition] = has.clamp(p.offset)
		}
	}
	if p.kind != atTime {
		return offsets, nil
	}
	var listed kadm.ListedOffsets
	if err := c.ofAll(ctx, func() (err error) {
		listed, err = c.admin.ListOffsetsAfterMilli(ctx, p.at.UnixMilli(), name)
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
