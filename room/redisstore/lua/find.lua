-- Find: the number of the visitor with a key; 0 if there is none. It changes nothing.
--
-- ARGV[3] the key's 16 bytes
return {OK, now, tonumber(call('HGET', keyPlace(ARGV[3])) or 0)}
