-- Setup creates a shard. It is idempotent.
--
-- KEYS[1] begins the names of all keys of the shard
redis.call('SET', KEYS[1] .. 'shard', cjson.encode({
  seq = 1, forgot = 0, virtual = 0, turn = 0, window = 0, started = 0, quota = 0, of = -1, slots = 0, version = 0,
  most = 0, event = 0, aside = {0, 0, 0}, kinds = {},
}), 'NX')
return 1
