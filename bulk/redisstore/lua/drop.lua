-- Drop deletes an id whose action is gone. It is idempotent.
--
-- KEYS[1] begins the names of all keys of the hub
-- ARGV[1] the id   ARGV[2] the number   ARGV[3] 1: unless the id is claimed
if ARGV[3] == '1' and redis.call('HEXISTS', KEYS[1] .. 'claims', ARGV[1]) == 1 then return 0 end
if redis.call('HGET', KEYS[1] .. 'ids', ARGV[1]) == ARGV[2] then
  redis.call('HDEL', KEYS[1] .. 'ids', ARGV[1])
  redis.call('HDEL', KEYS[1] .. 'claims', ARGV[1])
end
redis.call('ZREM', KEYS[1] .. 'order', ARGV[2])
return 1
