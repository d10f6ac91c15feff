-- Yielded records the slots that a shard has kept.
--
-- KEYS[1] begins the names of all keys of the hub
-- ARGV[1] the name of the limit   ARGV[2] the shard   ARGV[3] the slots   ARGV[4] the version
local key = KEYS[1] .. 'slots:' .. ARGV[1]
if tonumber(ARGV[4]) > tonumber(redis.call('HGET', key, 'v' .. ARGV[2]) or 0) then
  redis.call('HSET', key, ARGV[2], ARGV[3], 'v' .. ARGV[2], ARGV[4])
end
return 1
