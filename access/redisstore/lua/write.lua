-- Replaces the document in KEYS[1], if it has the version ARGV[1], by ARGV[3] of the version ARGV[2].
if (redis.call('HGET', KEYS[1], 'version') or '') ~= ARGV[1] then
  return 0
end
redis.call('HSET', KEYS[1], 'version', ARGV[2], 'document', ARGV[3])
return 1
