// Package redisstore keeps actions and jobs in Redis 7 or Valkey, for several instances
// of the service at once.
//
// Tenants are spread over a number of shards, which is fixed when the first instance
// opens the store. All keys of a shard have one hash tag, so that shards spread over the
// nodes of a cluster, and each move of [bulk.Store] is one Lua script on one shard: it is
// atomic and takes one round trip. The scripts are in lua/, one file per move;
// docs/formats/bulk-redis.md shows the keys.
//
// What all shards share is in the hub, under a hash tag of its own: the ids of actions,
// settings, and how much each shard was given of a limit in the present window. A shard
// starts no more than it was given, so that limits hold over all shards and instances;
// an instance that ends between being given and using wastes a slot, and exceeds none.
//
// Each instance has a mirror of what waits, which it brings up to date by asking shards
// what has changed. Policies decide by the mirror; scripts check what they decided.
//
// The servers' clocks decide. What was answered lasts as long as Redis keeps it:
// docs/bulk/redis.md says which settings give what. A call that ends with
// [bulk.ErrUnavailable] may have happened; each script says what the same call does
// then if it is made again.
package redisstore
