// Package redisstore keeps actions and jobs in Redis 7 or Valkey, for several instances
// of the service at once.
//
// Tenants are spread over a number of shards, which is fixed when the first instance opens
// the store. All keys of a shard have one hash tag, so that shards spread over the nodes of a
// cluster. Each operation of [bulk.Store] on a shard is one Lua script: it is atomic and
// takes one round trip. The scripts are in lua/, one file per operation. The keys are
// described in docs/formats/bulk-redis.md. While a slot of a cluster moves, its shard or the hub
// is unavailable.
//
// The hub, under a hash tag of its own, has the data that all shards share: the ids of
// actions, the settings, and each shard's part of a limit in the present window. A shard
// starts no more than its part, so limits hold over all shards and instances. An instance
// that ends before it uses its part wastes it, but exceeds no limit.
//
// Each instance has a mirror of the waiting jobs, which it updates by asking the shards what
// has changed. Policies decide by the mirror, and scripts check the decisions.
//
// The servers' clocks decide. An acknowledged operation lasts as long as Redis keeps it:
// docs/bulk/redis.md says which settings guarantee what. An operation that fails with
// [bulk.ErrUnavailable] may have happened; the comment of each script says what a repeated
// call does then.
package redisstore
