-- Dispatch moves jobs that are due, or whose lease has expired, to the front of their
-- action's line. It is safe to repeat.
--
-- ARGV[3] the maximum of jobs   ARGV[4] the maximum of crashes of a job
-- Returns how many jobs moved, and when the next one is due; 0 if none is known.
local most, mostCrashes = tonumber(ARGV[3]), tonumber(ARGV[4])
local moved = 0

local function put_back(number, a, fields, back)
  if #fields > 0 then each('HSET', P .. 'j:' .. number, fields) end
  if #back > 0 then goBack(number, a, back) end
  touch('a:' .. number)
end

local function takeUp(number, indexes)
  local a = actionOf(number)
  if not a then return end
  local states, fields, back, swept = statesOf(number, indexes), {}, {}, {}
  for _, index in ipairs(indexes) do
    local s = states[index]
    if s and s.phase == ASIDE and s.reason == THROTTLED then book(a, s.at, -1) end
    if s and s.phase == ASIDE and a.status == 'CANCELED' then
      swept[#swept + 1] = index
    elseif s and s.phase == ASIDE then
      if s.reason == THROTTLED then
        a.throttling = a.throttling - 1
      elseif s.reason == TRANSIENT then
        a.failing = a.failing - 1
      else
        a.limited = a.limited - 1
      end
      shard.aside[s.reason + 1] = shard.aside[s.reason + 1] - 1
      toLine(index, s, fields, back)
    end
  end
  each('HDEL', P .. 'j:' .. number, swept)
  if #back > 0 then put_back(number, a, fields, back) end
end

-- A lease of an instance's own workers expires only if the instance could not extend it, or its
-- answer was lost: that is like a crash.
local function expire(number, indexes)
  local a = actionOf(number)
  if not a then return end -- the action was forgotten
  local states, fields, back, e, landed, freed = statesOf(number, indexes), {}, {}, ending(), 0, {}
  for _, text in ipairs(indexes) do
    local s, index = states[text], tonumber(text)
    if s and s.phase == IN_FLIGHT then
      landed = landed + 1
      freed[#freed + 1] = text
      if a.status == 'CANCELED' then
        cancelJob(e, a, index, s)
      elseif s.own then
        if crash(e, number, a, index, s, mostCrashes) then toLine(text, s, fields, back) end
      elseif s.attempts >= a.most then
        fail(e, number, a, index, s, string.format('the lease expired before it was settled, in attempt %d of %d', s.attempts, a.most), 0)
      else
        a.retried = a.retried + 1
        s.lapsed = true
        toLine(text, s, fields, back)
      end
    end
  end
  if landed == 0 then return end
  land(a, landed)
  record(e, number, a)
  put_back(number, a, fields, back)
  letGo(number, a, freed)
end

if most > 0 then
  local due = call('ZRANGEBYSCORE', P .. 'due', '-inf', now, 'LIMIT', 0, most)
  if #due > 0 then
    local order, by = byAction(due)
    for _, number in ipairs(order) do takeUp(number, by[number]) end
    each('ZREM', P .. 'due', due)
    moved = #due
  end
end
if moved < most then
  for _, id in ipairs(call('ZRANGEBYSCORE', P .. 'yt', '-inf', now, 'LIMIT', 0, CHUNK)) do
    if moved < most then moved = moved + rouse(id, most - moved) end
  end
end
if moved < most then
  local ended = call('ZRANGEBYSCORE', P .. 'leases', '-inf', '(' .. now, 'LIMIT', 0, most - moved)
  if #ended > 0 then
    local order, by = byAction(ended)
    for _, number in ipairs(order) do expire(number, by[number]) end
    each('ZREM', P .. 'leases', ended)
    moved = moved + #ended
  end
end
flushKeys()
flush()
local soonest = 0
for _, key in ipairs({'due', 'leases', 'yt'}) do
  local first = call('ZRANGE', P .. key, 0, 0, 'WITHSCORES')
  if first[2] and tonumber(first[2]) < math.huge and (soonest == 0 or tonumber(first[2]) < soonest) then soonest = tonumber(first[2]) end
end
return {moved, soonest}
