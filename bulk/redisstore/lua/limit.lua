-- Limit stores settings of this shard, as of a revision: all of them, or those that have changed
-- since a revision that the shard has. Parts of the limits among them end: attempts beyond those
-- started need a new request. It is safe to repeat.
--
-- ARGV[3] the revision   ARGV[4] "" if these are all settings, else the revisions that lack no
-- other settings, with spaces around each
-- ARGV[5] and on: kind, name and value: l (a limit; "" is none), w (a weight), k (limits by key) or s (quotas)
-- Returns 1 and, for limits that shards share, what has started: name, window, attempts in it,
-- jobs in flight and the version of slots. Returns nothing if the shard lacks other settings.
local own = call('HGET', P .. 'limits', 'revision')
if tonumber(ARGV[3]) < tonumber(own or 0) then return {1} end
local all = ARGV[4] == ''
if not all and own ~= ARGV[3] and not (own and ARGV[4]:find(' ' .. own .. ' ', 1, true)) then return {} end
local limits, weights, ended, keyed = {'revision', ARGV[3]}, {}, {}, {}
local answer = {1}

-- restart lets nothing more start under a limit until more of it is requested.
local function restart(name, e, length)
  local present = math.floor(now / length)
  if e.window ~= present then e.window, e.started = present, 0 end
  e.of, e.quota = present, e.started
  touch(e == shard and 'shard' or name)
  if name:sub(1, 2) == 't:' then return end
  e.slots = 0 -- the hub gives the slots of jobs in flight again
  e.version = (e.version or 0) + 1 + (e.version or 0) % 2
  local flight = e.flight or 0
  if e == shard then
    for _, k in pairs(shard.kinds) do flight = flight + k.flight end
  end
  for _, value in ipairs({name, present, e.started, flight, e.version}) do answer[#answer + 1] = value end
end

for i = 5, #ARGV, 3 do
  local kind, name, value = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  if kind == 'k' then keyed[name:sub(3)] = true end
  if value == '' then
    ended[#ended + 1] = name
  else
    local list = kind == 'w' and weights or limits
    list[#list + 1], list[#list + 2] = name, value
    local e = kind == 'l' and (name == 'all' and shard or get(name))
    if e then restart(name, e, tonumber(value:match('^%d %d+ (%d+)$')) or WINDOW) end
  end
end
-- Dispatch looks at the keys with waiting jobs whose limits may have changed.
local stirred = {}
for _, id in ipairs(call('ZRANGE', P .. 'yt', 0, -1)) do
  if all or keyed[id:match('^(.-)\n')] then
    stirred[#stirred + 1] = now
    stirred[#stirred + 1] = id
  end
end
each('ZADD', P .. 'yt', stirred)
if all then call('UNLINK', P .. 'limits', P .. 'weights') end
each('HDEL', P .. 'limits', ended)
each('HSET', P .. 'limits', limits)
each('HSET', P .. 'weights', weights)
flush()
return answer
