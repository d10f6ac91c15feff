-- Limit stores the settings of this shard, as of a revision. Parts of limits end: attempts
-- beyond those started need a new request. It is safe to repeat.
--
-- ARGV[3] the revision   ARGV[4] and on: kind, name and value: l (a limit) or w (a weight)
-- Returns the window and, for limits that shards share, what has started in it: name,
-- attempts, jobs in flight and the version of slots.
local revision = tonumber(ARGV[3])
if revision < tonumber(call('HGET', P .. 'limits', 'revision') or 0) then return {window} end
local limits, weights = {'revision', ARGV[3]}, {}
local answer = {window}

-- restart lets nothing more start under a limit until more of it is requested.
local function restart(name, e)
  if e.window ~= window then e.window, e.started = window, 0 end
  e.of, e.quota = window, e.started
  if e.slots then
    e.slots = 0 -- the hub gives the slots of jobs in flight again
    e.version = e.version + 1 + e.version % 2
  end
  touch(e == shard and 'shard' or name)
  if name:sub(1, 2) ~= 't:' then
    answer[#answer + 1], answer[#answer + 2], answer[#answer + 3], answer[#answer + 4] = name, e.started, e.flight or 0, e.version or 0
  end
end

for i = 4, #ARGV, 3 do
  local kind, name, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local list = kind == 'w' and weights or limits
  list[#list + 1], list[#list + 2] = name, value
  local e = kind == 'l' and (name == 'all' and shard or get(name))
  if e then restart(name, e) end
end
call('UNLINK', P .. 'limits', P .. 'weights')
each('HSET', P .. 'limits', limits)
each('HSET', P .. 'weights', weights)
flush()
return answer
