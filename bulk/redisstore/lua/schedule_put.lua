-- Schedule put stores a schedule, if the stored one has the expected revision.
--
-- KEYS[1] the hash of schedules
-- ARGV[1] the name   ARGV[2] the expected revision, 0: none   ARGV[3] the schedule
-- ARGV[4] the maximum of schedules
local stored = redis.call('HGET', KEYS[1], ARGV[1])
local revision = stored and stored:match('^%d+') or '0'
if revision ~= ARGV[2] then return 1 end
if not stored and redis.call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return 2 end
redis.call('HSET', KEYS[1], ARGV[1], ARGV[3])
return 0
