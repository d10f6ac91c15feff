-- Auto put stores the rate found for a target up to a window. The first instance to store it
-- wins.
--
-- KEYS[1] the hash of rates
-- ARGV[1] the target   ARGV[2] the window   ARGV[3] the state of the AutoRate
-- Returns the window and the state that are stored then.
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if stored and tonumber(stored:match('^%-?%d+')) >= tonumber(ARGV[2]) then return stored end
local value = ARGV[2] .. ' ' .. ARGV[3]
redis.call('HSET', KEYS[1], ARGV[1], value)
return value
