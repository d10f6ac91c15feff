-- Ask: records that visitors asked, and answers where each is. It is idempotent: after
-- a lost answer, a repeated call finds a visitor who claimed inside. A sliding pass ends
-- as PassEnd in room/calling.go says; storetest/rules.go tests both.
--
-- ARGV[3] 1: visitors who are called claim   ARGV[4] the pass's ttl, in ms   ARGV[5] 1: passes slide
-- ARGV[6] and on: numbers, each followed by a fingerprint
local claim, ttl, sliding = ARGV[3] == '1', tonumber(ARGV[4]), ARGV[5] == '1'
local answer = {OK, now}
local nowText = string.format('%d', now) -- Redis would print the number with 17 digits

-- Nearly all visitors who ask are in the line or inside: both take a short path.
local aside = call('ZCARD', ASIDE) > 0
local plain = not drawn and lanes == 0
local ASKED, TICKETS, sub = prefix .. 'asked:', prefix .. 'ticket:', string.sub

local function inLine(number, member, rank)
  local n = #answer
  if plain then
    if aside then rank = rank + before(ASIDE, number, member) end
    answer[n + 1] = -rank
    return
  end
  local score, lane = call('ZSCORE', LINE, member), 0
  if lanes > 0 then lane, rank = laneOf(score), within(LINE, rank, score) end
  if aside then rank = rank + before(ASIDE, score, member) end
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = WAITING, rank, tonumber(score) < 0 and 1 or 0, 0
  answer[n + 5], answer[n + 6], answer[n + 7] = 0, 0, lane
end

local function inside(number, member, ends)
  if sliding then
    ends = now + ttl
    call('ZADD', INSIDE, ends, member)
  end
  local since, _, _, byLot = visitOf(number)
  local n = #answer
  answer[n + 1], answer[n + 2], answer[n + 3], answer[n + 4] = INSIDE_STATE, 0, byLot, tonumber(ends)
  answer[n + 5], answer[n + 6], answer[n + 7] = since, 0, 0
end

for i = 6, #ARGV, 2 do
  local number, print = ARGV[i], ARGV[i + 1]
  local member, hundred, field = memberOf(number), sub(number, 1, -3), sub(number, -2) -- as bucketOf and fieldOf
  local rank = call('ZRANK', LINE, member)
  local kept = print ~= '0' and call('HGET', TICKETS .. hundred, field) -- as fits
  if kept and kept ~= print then
    stranger(answer)
  elseif rank then
    call('HSET', ASKED .. hundred, field, nowText)
    inLine(number, member, rank)
  else
    local ends = call('ZSCORE', INSIDE, member)
    if ends then
      inside(number, member, ends)
    else
      asked(number, claim, ttl, sliding)
      placeOf(answer, number)
    end
  end
end
return answer
