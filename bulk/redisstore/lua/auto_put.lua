-- What was learned of a target's rate, up to a window; whoever learns first is believed.
--
-- KEYS[1]  the hash of rates
-- ARGV[1] the target   ARGV[2] the window   ARGV[3] what was learned
-- Answers what is known then.
local stored = redis.call('HGET', KEYS[1], ARGV[1])
if stored and tonumber(stored:match('^%-?%d+')) >= tonumber(ARGV[2]) then return stored end
local value = ARGV[2] .. ' ' .. ARGV[3]
redis.call('HSET', KEYS[1], ARGV[1], value)
return value
