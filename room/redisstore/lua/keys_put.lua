-- Replaces the signing keys, if as many are there as the caller has seen. Answers 1 for
-- a conflict. If the answer is lost, the same call again may conflict with itself: the
-- caller reads the keys.
--
-- KEYS[1] the list of keys   ARGV[1] how many were seen   ARGV[2] and on: the keys, as JSON
if redis.call('LLEN', KEYS[1]) ~= tonumber(ARGV[1]) then return 1 end
redis.call('DEL', KEYS[1])
for i = 2, #ARGV do redis.call('RPUSH', KEYS[1], ARGV[i]) end
return 0
