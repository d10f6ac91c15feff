-- Set stores a setting, and increases the revision of all settings. No quota is given until
-- every shard knows the revision. Revisions follow the clock, so that none is given twice if
-- the server has lost the newest.
--
-- KEYS[1] begins the names of all keys of the hub
-- ARGV[1] the name   ARGV[2] the value
-- ARGV[3] 1: other settings were stored too, and nobody knows which
local H = KEYS[1]
local time = redis.call('TIME')
local before = redis.call('HGET', H .. 'settings', 'revision') or '0'
local revision = string.format('%d', math.max(before + 1, time[1] * 1000 + math.floor(time[2] / 1000)))
redis.call('HSET', H .. 'settings', ARGV[1], ARGV[2], 'revision', revision)
if ARGV[3] == '1' then
  redis.call('DEL', H .. 'changes')
else
  redis.call('RPUSH', H .. 'changes', before .. ' ' .. revision .. ' ' .. ARGV[1])
  redis.call('LTRIM', H .. 'changes', -1000, -1)
end
return tonumber(revision)
