-- Takes a room's record out of the index of rooms, and records that its keys are to be
-- removed. It is idempotent.
--
-- KEYS[1] the index   KEYS[2] what is to be removed: "birth name"   KEYS[3] the last revision
-- ARGV[1] name
local call = redis.call
local entry = call('HGET', KEYS[1], ARGV[1])
if entry then
  local _, birth = entry:match('^(%d+) (%d+) ')
  call('SADD', KEYS[2], birth .. ' ' .. ARGV[1])
  call('HDEL', KEYS[1], ARGV[1])
  call('INCR', KEYS[3]) -- so that readers of the index see a change
end
return 0
