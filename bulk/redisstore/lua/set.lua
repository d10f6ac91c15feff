-- Set stores a setting, and increases the revision of all settings. No quota is given until
-- every shard knows the revision. Revisions follow the clock, so that none is given twice if
-- the server has lost the newest.
--
-- KEYS[1] begins the names of all keys of the hub
-- ARGV[1] the name   ARGV[2] the value
local time = redis.call('TIME')
local revision = math.max((redis.call('HGET', KEYS[1] .. 'settings', 'revision') or 0) + 1, time[1] * 1000 + math.floor(time[2] / 1000))
redis.call('HSET', KEYS[1] .. 'settings', ARGV[1], ARGV[2], 'revision', string.format('%d', revision))
return revision
