package redisstore

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/internal/rediskv"
	"github.com/sluice-project/sluice/room"
)

// Events implements room.Store.
func (s *Store) Events(ctx context.Context, name string, revision uint64, after int64, limit int) ([]room.Event, error) {
	var entries []rueidis.XRangeEntry
	args := []string{s.clock(), revisionOrAny(revision), number(max(after, 0)), strconv.Itoa(limit)}
	answer, err := s.healing(ctx, name, revisionOrAny(revision), func() ([]int64, int64, error) {
		status, err := rediskv.Exec(ctx, s.db, eventsScript, []string{s.roomKey(name)}, args, func(r rueidis.RedisResult) (status int64, err error) {
			status, entries, err = readEntries(r)
			return status, err
		})
		return []int64{status}, status, err
	})
	if err != nil {
		return nil, err
	}
	if err := statusErrors[answer[0]]; err != nil {
		return nil, err
	}
	events := make([]room.Event, len(entries))
	for i := range entries {
		if events[i], err = readEvent(&entries[i]); err != nil {
			return nil, err
		}
	}
	return events, nil
}

// readEntries reads what lua/events.lua answers.
func readEntries(r rueidis.RedisResult) (status int64, entries []rueidis.XRangeEntry, err error) {
	parts, err := r.ToArray()
	if err != nil {
		return 0, nil, err
	}
	if len(parts) < 2 {
		return 0, nil, fmt.Errorf("redis: the script %s answers %d parts", eventsScript.Name, len(parts))
	}
	if status, err = parts[0].AsInt64(); err == nil && len(parts) > 2 {
		entries, err = parts[2].AsXRange()
	}
	return status, entries, err
}

func readEvent(entry *rueidis.XRangeEntry) (room.Event, error) {
	id, _, _ := strings.Cut(entry.ID, "-")
	var numbers [3]int64
	for i, text := range []string{id, entry.FieldValues["number"], entry.FieldValues["time"]} {
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return room.Event{}, fmt.Errorf("redis: the event %s: %w", entry.ID, err)
		}
		numbers[i] = n
	}
	return room.Event{
		Sequence: numbers[0], Type: room.EventType(entry.FieldValues["type"]), Number: numbers[1],
		Inside: entry.FieldValues["inside"] == "1", Time: time.UnixMilli(numbers[2]),
	}, nil
}

// revisionOrAny is a revision as scripts have it; 0 is any.
func revisionOrAny(revision uint64) string {
	if revision == 0 {
		return ""
	}
	return strconv.FormatUint(revision, 10)
}

// Published implements room.Store.
func (s *Store) Published(ctx context.Context, name string, revision uint64, upTo int64) error {
	_, err := s.operate(ctx, publishScript, name, revisionOrAny(revision), 1, number(min(max(upTo, 0), math.MaxInt64-1)+1))
	return err
}
