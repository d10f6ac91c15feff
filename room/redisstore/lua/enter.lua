-- Enter: visitors go to the end of the line one after the other, and after each the line advances.
-- If a visitor's key has a place already, the visitor asks for that place instead, and nothing else
-- happens. The rules are MayEnter and ByDraw in room/calling.go; storetest/rules.go tests both.
--
-- If the answer is lost the visitors may be in the line: with a key, a repeated call
-- finds that place. Without a key, it makes another place, and the first is gone once
-- nobody has asked for it for too long.
--
-- It answers with a status for each, the number, 1 for a new visitor, and the place.
--
-- ARGV[11] tick; not 0: nobody is called here
-- ARGV[12], ARGV[13] when one may enter (until 0: always)
-- ARGV[14] until when the draw is the order   ARGV[15] how many may wait
-- ARGV[16] the pass's ttl, in ms              ARGV[17] 1: passes slide
-- ARGV[18] and on, for each visitor: the ticket's fingerprint, if there is no key, draw or lane, and a visitor who is
-- called claims. Of others "", and then the key's 16 bytes, or ""; the draw; 1 if a visitor who is called claims; the
-- fingerprint; the lane
local tick, ttl, sliding = tonumber(ARGV[11]), tonumber(ARGV[16]), ARGV[17] == '1'
local enterFrom, enterUntil, drawUntil, maxWaiting = tonumber(ARGV[12]), tonumber(ARGV[13]), tonumber(ARGV[14]), tonumber(ARGV[15])
local answer = {OK, now}

local function refused(status)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = status, 0, 0, 0
end

local function entered(number, new)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3] = OK, tonumber(number), new
end

local standing -- how many are in the line and aside
local function count() standing = call('ZCARD', LINE) + call('ZCARD', ASIDE) end
count()
local waiting = standing - call('ZCARD', CALLED)
local bucket -- the last that is in DUE since now
local full = false -- nobody else can be called here: nobody leaves

-- putInLine puts a new visitor at the end of the line. Numbers go to Redis as text where there is one:
-- it would print the others with 17 digits.
local nowText = string.format('%d', now)
local ASKED, TICKETS = prefix .. 'asked:', prefix .. 'ticket:' -- as bucketOf
local function putInLine(number, key, draw, fingerprint, lane)
  local member, hundred, field = memberOf(number), number:sub(1, -3), fieldOf(number)
  local score = lane == 0 and number or lane * LANE + room.number
  if lane > lanes then
    set('lanes', lane)
    lanes = lane
  end
  if lane == 0 and now < drawUntil then
    score = tonumber(draw) - 4503599627370496
    if not drawn then set('drawn', 1) end
    drawn = true
  end
  call('ZADD', LINE, score, member)
  call('HSET', ASKED .. hundred, field, nowText)
  if bucket ~= hundred then
    bucket = hundred
    call('ZADD', DUE, 'LT', now, bucket)
  end
  if fingerprint ~= '0' then call('HSET', TICKETS .. hundred, field, fingerprint) end
  if key ~= '' then
    if room.keyed == 0 then set('keyed', 1) end
    local index, rest = keyPlace(key)
    call('HSET', index, rest, number)
    call('HSET', bucketOf('owner', number), field, key)
  end
  note('entered', number, false)
  return member, score
end

local function enter(key, draw, claim, fingerprint, lane)
  local known = key ~= '' and call('HGET', keyPlace(key))
  if known then
    asked(known, claim, ttl, sliding)
    count()
    entered(known, 0)
    placeOf(answer, known)
    return
  end
  if now < enterFrom then return refused(NOT_OPEN) end
  if enterUntil ~= 0 and now >= enterUntil then return refused(ENDED) end
  if waiting >= maxWaiting then return refused(LINE_FULL) end
  if waiting == 0 then lapse(tick) end

  set('number', room.number + 1)
  local number = string.format('%d', room.number)
  local member, score = putInLine(number, key, draw, fingerprint, lane)
  waiting, standing = waiting + 1, standing + 1
  local still = true -- nobody was called or skipped
  if not full then
    local calls
    calls, full = callNow(tick)
    waiting = waiting - calls
    still = full and calls == 0
  end
  if not still then
    asked(number, claim, ttl, sliding)
    count()
  end
  entered(number, 1)
  -- Nearly all visitors who enter wait, in no lottery and no lane: all others are ahead, and the ask is
  -- recorded already.
  if not still or lanes > 0 or score ~= number then
    placeOf(answer, number)
    return
  end
  answer[#answer + 1] = 1 - standing
end

local i = 18
while i < #ARGV do
  if ARGV[i] ~= '' then
    enter('', '0', true, ARGV[i], 0)
    i = i + 1
  else
    enter(ARGV[i + 1], ARGV[i + 2], ARGV[i + 3] == '1', ARGV[i + 4], tonumber(ARGV[i + 5]))
    i = i + 6
  end
end
save()
return answer
