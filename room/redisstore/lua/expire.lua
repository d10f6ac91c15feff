-- Expire: ends passes, claim windows and places that are due, earliest first, and then
-- the line advances. It does some thousand at a time and reports whether there is more.
-- It is idempotent, and many may call it at once. The rules are Callable, ServiceAway,
-- PlaceEnd and Tends in room/calling.go; storetest/rules.go tests both.
--
-- ARGV[11] tick (0: there are none)   ARGV[12] how many may be called at it
-- ARGV[13] for how long a place is kept after the last ask, in ms
-- ARGV[14] the tender who calls, or ""   ARGV[15] how long a tender stays, in ms
local MAX_ENDS, MAX_BUCKETS, MAX_CLEAR = 1000, 20, 1000
local keep, more = tonumber(ARGV[13]), false

-- comeBack gives everybody the time that the service was away.
local function comeBack()
  set('floor', now)
  local ends = now + tonumber(ARGV[6])
  local first = call('ZRANGEBYSCORE', CALLED, '-inf', '(' .. ends)
  for _, member in ipairs(first) do call('ZADD', CALLED, ends, member) end
  away = false
end

-- endVisits ends the passes that are due, and takes the slots of no-shows.
local function endVisits()
  local list = ending(now, MAX_ENDS)
  for _, visitor in ipairs(list) do
    local number = visitor.number
    if visitor.called then
      call('ZREM', CALLED, memberOf(number))
      call('HDEL', VISITS, number)
      call('ZADD', DUE, 'LT', call('HGET', bucketOf('asked', number), fieldOf(number)), number:sub(1, -3))
      set('missed', room.missed + 1)
      note('missed', number, true)
    else
      depart(number, EXPIRED)
    end
  end
  return #list == MAX_ENDS
end

-- look goes through a bucket of a hundred visitors who are in the line: it adds those
-- whose time is over to a list, and returns when the earliest of the others asked last.
local function look(bucket, list)
  local fields = call('HGETALL', prefix .. 'asked:' .. bucket)
  local earliest
  for i = 1, #fields, 2 do
    local number, last = bucket .. fields[i], math.max(tonumber(fields[i + 1]), room.floor)
    if last + keep <= now then
      local ends = call('ZSCORE', CALLED, memberOf(number))
      if ends then
        last = tonumber(ends) - keep
      else
        list[#list + 1] = {number = number, order = tonumber(number), last = last}
        last = nil
      end
    end
    if last and (not earliest or last < earliest) then earliest = last end
  end
  return earliest
end

-- abandon makes visitors gone who have not asked for too long. It looks only at buckets
-- in which somebody can be due.
local function abandon()
  if room.floor + keep > now then return false end
  local buckets = call('ZRANGEBYSCORE', DUE, '-inf', now - keep, 'LIMIT', 0, MAX_BUCKETS)
  local list = {}
  for _, bucket in ipairs(buckets) do
    local earliest = look(bucket, list)
    if earliest then
      call('ZADD', DUE, earliest, bucket)
    else
      call('ZREM', DUE, bucket)
    end
  end
  table.sort(list, function(a, b)
    if a.last ~= b.last then return a.last < b.last end
    return a.order < b.order
  end)
  for _, visitor in ipairs(list) do depart(visitor.number, ABANDONED) end
  return #buckets == MAX_BUCKETS
end

-- callDue calls the visitors who may be called now. A large batch is called in several
-- expires: the rest of it is kept until the line or the free slots end.
local function callDue(tick, batch)
  if not mayCall() then return false end
  if tick == 0 then
    local _, stopped = callFirst(MAX_CALLS + 1, 0)
    return stopped
  end
  if tick <= now and tick > room.tick then
    set('tick', tick)
    set('left', batch)
  end
  if tick ~= room.tick or room.left == 0 then return false end
  local calls, stopped = callFirst(room.left, tick)
  set('left', stopped and room.left - calls or 0)
  return room.left > 0
end

-- first returns the lowest score of a sorted set.
local function first(sorted)
  local entry = call('ZRANGE', sorted, 0, 0, 'WITHSCORES')
  return entry[2] and tonumber(entry[2])
end

-- An instance that is not the room's tender gets the counts, and when it may take over.
local tender = call('HGET', KEYS[1], 'tender') or ''
local stays = room.beat + tonumber(ARGV[15])
if ARGV[14] ~= '' and tender ~= '' and tender ~= ARGV[14] and now >= room.beat and now < stays then
  return counts({OK, now, stays, 0, 0})
end

if away then comeBack() end
set('beat', now)
if room.clearing == 1 then
  local list = ending('+inf', MAX_CLEAR)
  for _, visitor in ipairs(list) do depart(visitor.number, REVOKED) end
  if #list == MAX_CLEAR then more = true else set('clearing', 0) end
end
if endVisits() then more = true end
if abandon() then more = true end
if callDue(tonumber(ARGV[11]), tonumber(ARGV[12])) then more = true end
local empty = call('ZCARD', LINE) + call('ZCARD', ASIDE) + call('ZCARD', INSIDE) == 0
local successor = empty and '' or ARGV[14] == '' and tender or ARGV[14]
if successor ~= tender then set('tender', successor) end
save()

local following = 0
local silence = first(DUE)
for _, ends in pairs({first(CALLED) or 0, first(INSIDE) or 0, silence and math.max(silence, room.floor) + keep or 0}) do
  if ends > 0 and (following == 0 or ends < following) then following = ends end
end
if following > 0 and following <= now then more = true end
return counts({OK, now, following, more and 1 or 0, 1})
