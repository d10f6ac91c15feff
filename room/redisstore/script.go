package redisstore

import (
	"context"
	"embed"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/redis/rueidis"

	"github.com/sluice-project/sluice/room"
)

//go:embed lua/*.lua
var sources embed.FS

// script is a Lua script, sent by its digest.
type script struct {
	name string
	lua  *rueidis.Lua
}

// newScript puts a script together from files of lua/, in that order. Flags are those
// of Redis: with allow-oom it runs when the memory is full, for people who are in
// the room already are served in any case.
func newScript(flags string, files ...string) script {
	parts := []string{strings.TrimSpace("#!lua " + flags)}
	for _, file := range files {
		source, err := sources.ReadFile("lua/" + file + ".lua")
		if err != nil {
			panic(err) // the files are in the binary
		}
		parts = append(parts, string(source))
	}
	text := strings.Join(parts, "\n")
	name := files[len(files)-1]
	if flags == readOnly {
		return script{name, rueidis.NewLuaScriptReadOnly(text)}
	}
	return script{name, rueidis.NewLuaScript(text)}
}

// The flags of scripts.
const (
	readOnly = "flags=no-writes"
	evenFull = "flags=allow-oom"
)

var (
	enterScript   = newScript("", "base", "place", "claim", "room", "call", "enter")
	askScript     = newScript(evenFull, "base", "place", "claim", "ask")
	renewScript   = newScript(evenFull, "base", "place", "renew")
	leaveScript   = newScript(evenFull, "base", "place", "room", "call", "leave")
	clearScript   = newScript(evenFull, "base", "place", "room", "call", "clear")
	expireScript  = newScript(evenFull, "base", "place", "room", "call", "expire")
	findScript    = newScript(readOnly, "base", "find")
	statusScript  = newScript(readOnly, "base", "status")
	eventsScript  = newScript(readOnly, "base", "events")
	publishScript = newScript(evenFull, "base", "published")

	recordPutScript    = newScript(evenFull, "record_put")
	recordRemoveScript = newScript(evenFull, "record_remove")
	roomPutScript      = newScript(evenFull, "room_put")
	roomRemoveScript   = newScript(evenFull, "room_remove")
	keysPutScript      = newScript(evenFull, "keys_put")
	leaseScript        = newScript(evenFull, "lease")
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
func exec[T any](ctx context.Context, s *Store, sc script, keys, args []string, read func(rueidis.RedisResult) (T, error)) (T, error) {
	return call(ctx, s, func(ctx context.Context) (T, error) { return read(sc.lua.Exec(ctx, s.client, keys, args)) })
}

func asInt(r rueidis.RedisResult) (int64, error) { return r.AsInt64() }

// move runs a script about a room that answers with integers: at least so many after
// the status and the time, unless the status is an error. The answer is without the
// status. Revision "" is any.
func (s *Store) move(ctx context.Context, sc script, name, revision string, least int, args ...string) ([]int64, error) {
	args = append([]string{s.clock(), revision}, args...)
	answer, err := s.healing(ctx, name, revision, func() ([]int64, int64, error) {
		answer, err := exec(ctx, s, sc, []string{s.roomKey(name)}, args, rueidis.RedisResult.AsIntSlice)
		if err == nil && len(answer) < 2 {
			err = fmt.Errorf("redis: the script %s answers %d numbers", sc.name, len(answer))
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
		return nil, fmt.Errorf("redis: the script %s answers %d numbers", sc.name, len(answer))
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
