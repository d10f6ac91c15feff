package redisstore

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/internal/rediskv"
	"github.com/sluice-project/sluice/room"
)

// roomKey is the room's hash, and the prefix of its other keys. Names have no upper-case
// letters, so no room has the hash tag of the index.
func (s *Store) roomKey(name string) string { return s.prefix + "{" + name + "}" }

func (s *Store) removingKey(name string) string { return s.roomKey(name) + ":removing" }

func (s *Store) indexKey(what string) string { return s.prefix + "{ROOMS}:" + what }

// entry is a room's record in the index: "revision birth record".
type entry struct {
	revision, birth, data string
}

func parseEntry(text string) (*entry, error) {
	parts := strings.SplitN(text, " ", 3)
	if len(parts) != 3 {
		return nil, fmt.Errorf("redis: a record of the index of rooms begins with %.40q", text)
	}
	return &entry{parts[0], parts[1], parts[2]}, nil
}

// Rooms implements room.Store.
func (s *Store) Rooms(ctx context.Context) ([]room.Record, error) {
	entries, err := ask(ctx, s, s.db.B().Hgetall().Key(s.indexKey("records")).Build(), rueidis.RedisResult.AsStrMap)
	if err != nil {
		return nil, err
	}
	records := make([]room.Record, 0, len(entries))
	for name, text := range entries {
		e, err := parseEntry(text)
		if err != nil {
			return nil, err
		}
		revision, err := strconv.ParseUint(e.revision, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("redis: the record of room %s: %w", name, err)
		}
		records = append(records, room.Record{Name: name, Data: []byte(e.data), Revision: revision})
	}
	slices.SortFunc(records, func(a, b room.Record) int { return strings.Compare(a.Name, b.Name) })
	return records, nil
}

// RoomsVersion implements room.Store.
func (s *Store) RoomsVersion(ctx context.Context) (uint64, error) {
	return ask(ctx, s, s.db.B().Get().Key(s.indexKey("revision")).Build(), func(r rueidis.RedisResult) (uint64, error) {
		version, err := r.AsUint64()
		if rueidis.IsRedisNil(err) {
			return 0, nil
		}
		return version, err
	})
}

// entry returns a room's record, nil if there is none.
func (s *Store) entry(ctx context.Context, name string) (*entry, error) {
	text, err := ask(ctx, s, s.db.B().Hget().Key(s.indexKey("records")).Field(name).Build(), asText)
	if err != nil || text == "" {
		return nil, err
	}
	return parseEntry(text)
}

// PutRoom implements room.Store. It puts the record, which decides, and then raises the
// room's hash to it; if the process ends in between, the next operation does that.
func (s *Store) PutRoom(ctx context.Context, name string, record []byte, revision uint64, version ...uint64) (uint64, error) {
	keys := []string{s.indexKey("records"), s.indexKey("revision")}
	args := []string{name, rueidis.BinaryString(record), strconv.FormatUint(revision, 10), strconv.Itoa(room.MaxRooms)}
	for _, v := range version {
		args = append(args, strconv.FormatUint(v, 10))
	}
	answer, err := rediskv.Exec(ctx, s.db, recordPutScript, keys, args, rueidis.RedisResult.AsIntSlice)
	switch {
	case err != nil:
		return 0, err
	case len(answer) == 1 && answer[0] == 1:
		return 0, room.ErrConflict
	case len(answer) == 1 && answer[0] == 2:
		return 0, room.ErrTooManyRooms
	case len(answer) != 3:
		return 0, fmt.Errorf("redis: the script %s answers %d", recordPutScript.Name, answer)
	}
	put := &entry{revision: number(answer[1]), birth: number(answer[2])}
	if err := s.putHash(ctx, name, put); err != nil {
		return 0, err
	}
	return uint64(answer[1]), nil
}

// putHash raises a room's hash to its record.
func (s *Store) putHash(ctx context.Context, name string, e *entry) error {
	_, err := rediskv.Exec(ctx, s.db, roomPutScript, []string{s.roomKey(name), s.removingKey(name)}, []string{e.revision, e.birth}, asInt)
	return err
}

// RemoveRoom implements room.Store. The room is gone when its record is; its keys are
// removed in steps and, if they are cut short, by the next RemoveRoom or Open.
func (s *Store) RemoveRoom(ctx context.Context, name string) error {
	keys := []string{s.indexKey("records"), s.indexKey("removing"), s.indexKey("revision")}
	if _, err := rediskv.Exec(ctx, s.db, recordRemoveScript, keys, []string{name}, asInt); err != nil {
		return err
	}
	return s.sweep(ctx)
}

// sweep removes the keys of removed rooms.
func (s *Store) sweep(ctx context.Context) error {
	pending, err := ask(ctx, s, s.db.B().Smembers().Key(s.indexKey("removing")).Build(), rueidis.RedisResult.AsStrSlice)
	if err != nil {
		return err
	}
	var failures []error
	for _, item := range pending {
		failures = append(failures, s.sweepRoom(ctx, item))
	}
	return errors.Join(failures...)
}

// sweepRoom removes the keys of one room, "birth name".
func (s *Store) sweepRoom(ctx context.Context, item string) error {
	birth, name, _ := strings.Cut(item, " ")
	for {
		more, err := rediskv.Exec(ctx, s.db, roomRemoveScript, []string{s.roomKey(name), s.removingKey(name)}, []string{birth}, asInt)
		if err != nil {
			return err
		}
		if more == 0 {
			break
		}
	}
	_, err := ask(ctx, s, s.db.B().Srem().Key(s.indexKey("removing")).Member(item).Build(), asInt)
	return err
}
