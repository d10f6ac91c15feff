-- Import stage appends values to a list that no other key refers to yet. It is idempotent.
--
-- ARGV[3] the list   ARGV[4] how many values precede these   ARGV[5] and on: the values
-- Returns the checksum of the stored values; "" if fewer values precede them.
local key, have = P .. ARGV[3], tonumber(ARGV[4])
if have == 0 then call('UNLINK', key) else call('LTRIM', key, 0, have - 1) end
if call('LLEN', key) ~= have then return '' end
for i = 5, #ARGV, CHUNK do call('RPUSH', key, unpack(ARGV, i, math.min(i + CHUNK - 1, #ARGV))) end
local found = call('LRANGE', key, have, -1)
for i, value in ipairs(found) do found[i] = #value .. ':' .. value end
return redis.sha1hex(table.concat(found))
