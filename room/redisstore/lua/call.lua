-- Calling from the front of the line. The rules are those of Callable, Lapsed, ServiceAway
-- and Silent in room/calling.go, and of Turns in room/lanes.go; storetest/rules.go tests both.
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

-- Turns of lanes, as in room/lanes.go; in a room without lanes there are none.
local TURN_OF_SHARE_1 = 1048576
local shares, turns = {}, {}
local function readTurns()
  shares, turns = {}, {}
  for share in ARGV[#ARGV]:gmatch('%d+') do shares[#shares + 1] = math.max(1, tonumber(share)) end
  local kept = call('HGET', KEYS[1], 'turns') or ''
  for turn in kept:gmatch('%d+') do turns[#turns + 1] = tonumber(turn) end
end
local function turnOf(lane) return turns[lane + 1] or 0 end

-- calledFrom changes the turns after a call from a lane.
local function calledFrom(lane)
  local passed = turnOf(lane)
  for l = 0, #shares - 1 do turns[l + 1] = math.max(0, turnOf(l) - passed) end
  turns[lane + 1] = math.floor(TURN_OF_SHARE_1 / shares[lane + 1])
end

-- pageOf returns the first visitors of a lane who are in the line, at most so many: their
-- members and scores, from the index at on.
local function pageOf(lane, most)
  local page = call('ZRANGEBYSCORE', LINE, lowest(lane), '(' .. lowest(lane + 1), 'WITHSCORES', 'LIMIT', 0, math.min(most, PAGE))
  page.at, page.ended = 1, #page == 0
  return page
end

-- nextLane returns the lane that is next, of those in which somebody may be called, with its page,
-- and whether there are others.
local function nextLane(pages, most)
  local lane, contested
  for l = 0, lanes do
    local page = pages[l]
    if not page or page.at > #page and not page.ended then
      page = pageOf(l, most)
      pages[l] = page
    end
    if not page.ended then
      contested = lane ~= nil
      if not lane or turnOf(l) <= turnOf(lane) then lane = l end
    end
  end
  return lane, pages[lane], contested
end

-- callFirst calls the first of the lane that is next, again and again, at a tick (0: none): at most
-- so many, and no more than there are free slots. It returns how many it called, whether it
-- stopped early because it had done enough for one operation, and how many slots are free then.
local function callFirst(most, tick)
  local free = capacity - call('ZCARD', CALLED) - call('ZCARD', INSIDE)
  local want = math.min(free, most, MAX_CALLS)
  local calls, skips, pages = 0, 0, {}
  if lanes > 0 then readTurns() end
  while calls < want and skips < MAX_SKIPS do
    local lane, page, contested = nextLane(pages, want - calls)
    if not lane then break end
    local member, score = page[page.at], page[page.at + 1]
    local number = numberOf(member)
    page.at = page.at + 2
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
      if contested then calledFrom(lane) end
    end
  end
  if lanes > 0 and calls > 0 then call('HSET', KEYS[1], 'turns', table.concat(turns, ' ')) end
  return calls, free > calls and most > calls and call('ZCARD', LINE) > 0, math.max(0, free - calls)
end

-- callNow is the last step of operations other than an expire. With ticks they call
-- nobody. It returns how many it called, and whether nobody else can be called.
local function callNow(tick)
  if tick ~= 0 or not mayCall() then return 0, true end
  local calls, _, free = callFirst(MAX_CALLS + 1, 0)
  return calls, free == 0
end
