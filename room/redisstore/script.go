package redisstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/rediskv"
	"github.com/sluice-project/sluice/room"
)

//go:embed lua/*.lua
var sources embed.FS

// newScript puts a script together from files of lua/.
func newScript(flags string, files ...string) rediskv.Script {
	return rediskv.NewScript(sources, flags, files...)
}

// People who are in the room already are served even when the memory is full.
var (
	enterScript   = newScript("", "base", "place", "claim", "room", "call", "enter")
	askScript     = newScript(rediskv.EvenFull, "base", "place", "claim", "ask")
	renewScript   = newScript(rediskv.EvenFull, "base", "place", "renew")
	leaveScript   = newScript(rediskv.EvenFull, "base", "place", "room", "call", "leave")
	clearScript   = newScript(rediskv.EvenFull, "base", "place", "room", "call", "clear")
	expireScript  = newScript(rediskv.EvenFull, "base", "place", "room", "call", "expire")
	findScript    = newScript(rediskv.ReadOnly, "base", "find")
	statusScript  = newScript(rediskv.ReadOnly, "base", "status")
	eventsScript  = newScript(rediskv.ReadOnly, "base", "events")
	publishScript = newScript(rediskv.EvenFull, "base", "published")

	recordPutScript    = newScript(rediskv.EvenFull, "record_put")
	recordRemoveScript = newScript(rediskv.EvenFull, "record_remove")
	roomPutScript      = newScript(rediskv.EvenFull, "room_put")
	roomRemoveScript   = newScript(rediskv.EvenFull, "room_remove")
	keysPutScript      = newScript(rediskv.EvenFull, "keys_put")
	leaseScript        = newScript(rediskv.EvenFull, "lease")
)

// What a script about a room answers first, as in lua/base.lua.
const (
	statusOK = iota
	statusNoRoom
	statusStale
	statusNotOpen
	statusEnded
	statusLineFull
	statusNotRenewable
)

var statusErrors = map[int64]error{
	statusNoRoom: room.ErrNoRoom, statusStale: room.ErrStale, statusNotOpen: room.ErrNotOpen,
	statusEnded: room.ErrEnded, statusLineFull: room.ErrLineFull, statusNotRenewable: room.ErrNotRenewable,
}

// exec runs a script about no room.
func exec[T any](ctx context.Context, s *Store, sc rediskv.Script, keys, args []string, read func(rueidis.RedisResult) (T, error)) (T, error) {
	return rediskv.Exec(ctx, s.db, sc, keys, args, read)
}

func asInt(r rueidis.RedisResult) (int64, error) { return r.AsInt64() }

// move runs a script about a room that answers with integers: at least so many after
// the status and the time, unless the status is an error. The answer is without the
// status. Revision "" is any.
func (s *Store) move(ctx context.Context, sc rediskv.Script, name, revision string, least int, args ...string) ([]int64, error) {
	args = append([]string{s.clock(), revision}, args...)
	answer, err := s.healing(ctx, name, revision, func() ([]int64, int64, error) {
		answer, err := exec(ctx, s, sc, []string{s.roomKey(name)}, args, rueidis.RedisResult.AsIntSlice)
		if err == nil && len(answer) < 2 {
			err = fmt.Errorf("redis: the script %s answers %d numbers", sc.Name, len(answer))
		}
		if err != nil {
			return nil, statusOK, err
		}
		return answer, answer[0], nil
	})
	if err != nil {
		return nil, err
	}
	status := answer[0]
	if (status == statusOK || status == statusNotRenewable) && len(answer) < least+2 {
		return nil, fmt.Errorf("redis: the script %s answers %d numbers", sc.Name, len(answer))
	}
	return answer[1:], statusErrors[status]
}

// healing runs a script, and again if the room's hash was behind the index of rooms:
// the process that put the record may have ended before it raised the hash. If it is the
// index that is behind, its node has lost a change, and its record is put again, with a
// revision after all.
func (s *Store) healing(ctx context.Context, name, revision string, run func() ([]int64, int64, error)) ([]int64, error) {
	answer, status, err := run()
	if err != nil || status != statusNoRoom && status != statusStale {
		return answer, err
	}
	current, err := s.entry(ctx, name)
	switch {
	case err != nil:
		return nil, err
	case current == nil:
		return nil, room.ErrNoRoom
	case status == statusStale && current.revision != revision:
		return nil, room.ErrStale
	}
	if err := s.putHash(ctx, name, current); err != nil {
		return nil, err
	}
	answer, again, err := run()
	if err != nil || again != statusStale || revision == "" {
		return answer, err
	}
	behind, err := strconv.ParseUint(revision, 10, 64)
	if err == nil {
		_, err = s.PutRoom(ctx, name, []byte(current.data), behind)
	}
	if err != nil && !errors.Is(err, room.ErrConflict) { // a conflict: it was changed just now
		return nil, err
	}
	return answer, nil
}
