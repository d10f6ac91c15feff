-- Brings a room's hash to the revision of its record: creates the hash, or raises its
-- revision. It is idempotent, and may run late: a revision never falls.
--
-- KEYS[1] the room's hash   KEYS[2] what of it is being removed: birth -> ...
-- ARGV[1] revision   ARGV[2] birth, the revision that made the room
local call = redis.call
if call('HEXISTS', KEYS[2], ARGV[2]) == 1 then return 0 end
local found = call('HMGET', KEYS[1], 'revision', 'birth', 'number', 'keyed')
if found[1] and tonumber(found[1]) >= tonumber(ARGV[1]) then return 0 end
if found[2] and found[2] ~= ARGV[2] then
  -- An earlier room of that name, whose removal was cut short.
  call('HSET', KEYS[2], found[2], (found[3] or 0) .. ' ' .. (found[4] or 0))
  call('DEL', KEYS[1])
end
call('HSET', KEYS[1], 'revision', ARGV[1], 'birth', ARGV[2])
return 0
