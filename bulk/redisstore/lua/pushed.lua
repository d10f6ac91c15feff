-- Pushed records that every shard knows the settings of a revision. The attempts that a shard
-- has started in the window become its part of the limit. The first caller wins.
--
-- KEYS[1] begins the names of all keys of the hub
-- ARGV[1] the revision   ARGV[2] how long windows are kept, in ms
-- ARGV[3] and on: shard, name, window, started, in flight, version
local H = KEYS[1]
if redis.call('HGET', H .. 'settings', 'revision') ~= ARGV[1] then return 0 end
if redis.call('HGET', H .. 'settings', 'pushed') == ARGV[1] then return 0 end
for i = 3, #ARGV, 6 do
  local shard, name, window = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  redis.call('HSET', H .. 'allot:' .. name .. ':' .. window, shard, ARGV[i + 3])
  redis.call('PEXPIRE', H .. 'allot:' .. name .. ':' .. window, ARGV[2])
  redis.call('HSET', H .. 'slots:' .. name, shard, ARGV[i + 4], 'v' .. shard, ARGV[i + 5])
end
redis.call('HSET', H .. 'settings', 'pushed', ARGV[1])
return 1
