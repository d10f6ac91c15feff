package redisstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/internal/rediskv"
	"github.com/sluice-project/sluice/room"
)

//go:embed lua/*.lua
var sources embed.FS

// newScript builds a script from files of lua/.
func newScript(flags string, files ...string) rediskv.Script {
	return rediskv.NewScript(sources, flags, files...)
}

// Visitors who are in the room already are served even when the memory is full.
var (
	enterScript   = newScript("", "base", "place", "claim", "room", "call", "enter")
	askScript     = newScript(rediskv.EvenFull, "base", "place", "claim", "ask")
	renewScript   = newScript(rediskv.EvenFull, "base", "place", "renew")
	leaveScript   = newScript(rediskv.EvenFull, "base", "place", "room", "call", "leave")
	clearScript   = newScript(rediskv.EvenFull, "base", "place", "room", "call", "clear")
	expireScript  = newScript(rediskv.EvenFull, "base", "place", "room", "call", "counts", "expire")
	findScript    = newScript(rediskv.ReadOnly, "base", "find")
	statusScript  = newScript(rediskv.ReadOnly, "base", "counts", "status")
	eventsScript  = newScript(rediskv.ReadOnly, "base", "events")
	publishScript = newScript(rediskv.EvenFull, "base", "published")

	recordPutScript    = newScript(rediskv.EvenFull, "record_put")
	recordRemoveScript = newScript(rediskv.EvenFull, "record_remove")
	roomPutScript      = newScript(rediskv.EvenFull, "room_put")
	roomRemoveScript   = newScript(rediskv.EvenFull, "room_remove")
	keysPutScript      = newScript(rediskv.EvenFull, "keys_put")
	ownershipScript    = newScript(rediskv.EvenFull, "ownership")
)

// The first integer of a script's answer, as in lua/base.lua.
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

func asInt(r rueidis.RedisResult) (int64, error) { return r.AsInt64() }

// asText reads text; none is "".
func asText(r rueidis.RedisResult) (string, error) {
	text, err := r.ToString()
	if rueidis.IsRedisNil(err) {
		return "", nil
	}
	return text, err
}

// operate runs a script about a room that answers with integers: at least so many after the
// status and the time, unless the status is an error. The result is without the status.
// An empty revision matches any.
func (s *Store) operate(ctx context.Context, sc rediskv.Script, name, revision string, least int, args ...string) ([]int64, error) {
	args = append([]string{s.clock(), revision}, args...)
	answer, err := s.healing(ctx, name, revision, func() ([]int64, int64, error) {
		answer, err := rediskv.Exec(ctx, s.db, sc, []string{s.roomKey(name)}, args, rueidis.RedisResult.AsIntSlice)
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

// healing runs a script, and runs it again if the room's hash was behind the index of
// rooms: the process that put the record may have ended before it raised the hash. If the
// index is behind, its node has lost a change, and healing puts the index's record again,
// with a revision higher than all.
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
