-- Calling from the front of the line. The rules are those of Callable, Lapsed, ServiceAway
-- and Silent in room/calling.go; storetest/rules.go tests both.
local capacity, from, till = tonumber(ARGV[3]), tonumber(ARGV[4]), tonumber(ARGV[5])
local MAX_CALLS, MAX_SKIPS, PAGE = 1000, 2000, 200

-- mayCall reports whether anybody may be called at all. While a clear is in progress
-- nobody is, so that it ends.
local function mayCall()
  return capacity > 0 and now >= from and (till == 0 or now < till) and room.clearing == 0
end

-- lapse uses up the ticks until now, for which a visitor who enters a line in which nobody
-- waits is too late.
local function lapse(tick)
  if tick == 0 or tick > now or tick < room.tick or not mayCall() then return end
  if tick > room.tick then set('tick', tick) end
  if room.left ~= 0 then set('left', 0) end
end

-- silent reports whether a visitor has not asked for too long. While the service was
-- away none could.
local away = room.beat == 0 or now - room.beat > tonumber(ARGV[8])
local function silent(number)
  if away then return false end
  local last = tonumber(call('HGET', bucketOf('asked', number), fieldOf(number)) or 0)
  return now - math.max(last, room.floor) >= tonumber(ARGV[7])
end

-- callFirst calls the first of the line at a tick (0: none): at most so many, and no
-- more than there are free slots. It returns how many it called, and whether it stopped
-- early because it had done enough for one operation.
local function callFirst(most, tick)
  local free = capacity - call('ZCARD', CALLED) - call('ZCARD', INSIDE)
  local want = math.min(free, most, MAX_CALLS)
  local calls, skips = 0, 0
  while calls < want do
    local page = call('ZRANGE', LINE, 0, math.min(want - calls, PAGE) - 1, 'WITHSCORES')
    if #page == 0 then return calls, false end
    for i = 1, #page, 2 do
      local member, score = page[i], page[i + 1]
      local number = numberOf(member)
      call('ZREM', LINE, member)
      call('ZADD', ASIDE, score, member)
      if silent(number) then
        skips = skips + 1
      else
        calls = calls + 1
        call('ZADD', CALLED, now + tonumber(ARGV[6]), member)
        keepVisit(number, now, tick, 0, tonumber(score) < 0 and 1 or 0)
        set('admitted', room.admitted + 1)
        note('admitted', number, false)
      end
    end
    if skips >= MAX_SKIPS then break end
  end
  return calls, free > calls and most > calls and call('ZCARD', LINE) > 0
end

-- callNow is the last step of operations other than an expire. With ticks they call
-- nobody.
local function callNow(tick)
  if tick == 0 and mayCall() then callFirst(MAX_CALLS + 1, 0) end
end
