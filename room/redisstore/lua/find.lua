-- Find: the number of the visitor with a key; 0 if there is none. It changes nothing.
--
-- ARGV[3] the key's 16 bytes
local key = ARGV[3]
return {OK, now, tonumber(call('HGET', prefix .. 'key:' .. string.format('%02x%02x', key:byte(1, 2)), key:sub(3)) or 0)}
