-- Claim returns the number of the action of an id, and gives a new id a new number. The spec
-- is kept until the action exists, so that any later caller can create it. After a restart,
-- or on another server, the sequence skips many numbers: the newest may have been lost, and
-- no number may be given twice.
--
-- KEYS[1] begins the names of all keys of the hub
-- ARGV[1] the id   ARGV[2] the shard   ARGV[3] the maximum of shards   ARGV[4] the spec
-- Returns the number, and the spec if the action may not exist yet.
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
