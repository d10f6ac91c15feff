-- Replaces the signing keys, if the newest of them is the one that the caller has seen.
-- Answers 1 for a conflict. If the answer is lost, a repeated call conflicts with the
-- first: the caller reads the keys.
--
-- KEYS[1] the list of keys   ARGV[1] the ID of the newest, '' for none
-- ARGV[2] and on: the keys, as JSON
local newest = redis.call('LINDEX', KEYS[1], -1)
if (newest and cjson.decode(newest).id or '') ~= ARGV[1] then return 1 end
redis.call('DEL', KEYS[1])
for i = 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
return 0
