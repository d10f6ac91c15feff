// Package redisstore keeps rooms in Redis 7 or Valkey, for several instances of the
// service at once.
//
// Each operation of [room.Store] is one Lua script, so it is atomic and takes one round
// trip; the scripts are in lua/, one file per operation, and docs/formats/room-redis.md
// shows the keys. All keys of a room have one hash tag, so that rooms spread over the
// nodes of a cluster. The server's clock decides.
//
// Acknowledged operations last as long as Redis keeps them: docs/room/redis.md says which
// settings give what. A call that returns [room.ErrUnavailable] may have happened; each
// script says what a repeated call does then.
package redisstore
