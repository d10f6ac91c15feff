-- Puts a room's record into the index of rooms, if its revision is the expected one. If
-- the answer is lost, a repeated call conflicts with the first: the caller reads the
-- record.
--
-- KEYS[1] the index: name -> "revision birth record"   KEYS[2] the last revision
-- ARGV[1] name   ARGV[2] record   ARGV[3] revision, 0: the room must not exist
-- ARGV[4] how many rooms there may be   ARGV[5] the last revision that the caller has seen, if that matters
--
-- Answers {0, revision, birth}, {1} for a conflict, {2} for too many rooms.
local call = redis.call
local entry = call('HGET', KEYS[1], ARGV[1])
local revision, birth = '0', nil
if entry then revision, birth = entry:match('^(%d+) (%d+) ') end
if revision ~= ARGV[3] then return {1} end
if ARGV[5] and ARGV[5] ~= (call('GET', KEYS[2]) or '0') then return {1} end
if not entry and call('HLEN', KEYS[1]) >= tonumber(ARGV[4]) then return {2} end

-- Revisions follow the clock, in microseconds, so that one that was lost with the
-- last writes of a server that failed does not come again either.
local time = call('TIME')
local last = tonumber(call('GET', KEYS[2]) or 0)
local fresh = string.format('%.0f', math.max(last + 1, time[1] * 1000000 + time[2]))
call('SET', KEYS[2], fresh)
birth = birth or fresh
call('HSET', KEYS[1], ARGV[1], fresh .. ' ' .. birth .. ' ' .. ARGV[2])
return {0, fresh, birth}
