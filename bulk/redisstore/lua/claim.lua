-- Claim: the number of the action of an id, which is new if there is none. What is asked
-- for is kept until the action is there, so that whoever comes next can go on. After a
-- restart, or on another server, many numbers are left out: the newest that were given may
-- have been lost, and none is given again.
--
-- KEYS[1]  begins the names of all keys of the hub
-- ARGV[1] the id   ARGV[2] the shard   ARGV[3] the most shards   ARGV[4] the spec
-- Answers the number, and the spec if the action may not be there yet.
local H, id = KEYS[1], ARGV[1]
local number = redis.call('HGET', H .. 'ids', id)
if not number then
  local run = redis.call('INFO', 'server'):match('run_id:(%w+)')
  local before = redis.call('HGET', H .. 'config', 'run')
  if before ~= run then redis.call('HSET', H .. 'config', 'run', run) end
  local sequence = redis.call('INCRBY', H .. 'sequence', before and before ~= run and 1000000 or 1)
  number = string.format('%d', sequence * ARGV[3] + ARGV[2])
  redis.call('HSET', H .. 'ids', id, number)
  redis.call('HSET', H .. 'claims', id, ARGV[4])
  redis.call('ZADD', H .. 'order', sequence, number)
end
return {number, redis.call('HGET', H .. 'claims', id) or ''}
