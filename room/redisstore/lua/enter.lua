-- Enter: a visitor goes to the end of the line, and the line advances. If the key has a
-- place already, the visitor asks for that place instead, and nothing else happens. The
-- rules are MayEnter and ByDraw in room/calling.go; storetest/rules.go tests both.
--
-- If the answer is lost the visitor may be in the line: with a key, a repeated call
-- finds that place. Without a key, it makes another place, and the first is gone once
-- nobody has asked for it for too long.
--
-- ARGV[11] tick; not 0: nobody is called here
-- ARGV[12], ARGV[13] when one may enter (until 0: always)
-- ARGV[14] until when the draw is the order   ARGV[15] how many may wait
-- ARGV[16] the pass's ttl, in ms              ARGV[17] 1: passes slide
-- ARGV[18] the key's 16 bytes, or ""          ARGV[19] the draw
-- ARGV[20] 1: a visitor who is called claims  ARGV[21] the ticket's fingerprint
-- ARGV[22] the lane
local key, ttl, sliding, claim = ARGV[18], tonumber(ARGV[16]), ARGV[17] == '1', ARGV[20] == '1'
if key ~= '' then
  local number = call('HGET', keyPlace(key))
  if number then
    asked(number, claim, ttl, sliding)
    local answer = {OK, now, tonumber(number), 0}
    placeOf(answer, number)
    return answer
  end
end

if now < tonumber(ARGV[12]) then return {NOT_OPEN, now} end
if ARGV[13] ~= '0' and now >= tonumber(ARGV[13]) then return {ENDED, now} end
local waiting = call('ZCARD', LINE) + call('ZCARD', ASIDE) - call('ZCARD', CALLED)
if waiting >= tonumber(ARGV[15]) then return {LINE_FULL, now} end
if waiting == 0 then lapse(tonumber(ARGV[11])) end

set('number', room.number + 1)
local number = string.format('%d', room.number)
local member, field, lane = memberOf(number), fieldOf(number), tonumber(ARGV[22])
local score = lane * LANE + room.number
if lane > lanes then
  set('lanes', lane)
  lanes = lane
end
if lane == 0 and now < tonumber(ARGV[14]) then
  score = tonumber(ARGV[19]) - 4503599627370496
  if not drawn then set('drawn', 1) end
end
call('ZADD', LINE, score, member)
call('HSET', bucketOf('asked', number), field, now)
call('ZADD', DUE, 'LT', now, number:sub(1, -3))
if ARGV[21] ~= '0' then call('HSET', bucketOf('ticket', number), field, ARGV[21]) end
if key ~= '' then
  if room.keyed == 0 then set('keyed', 1) end
  local index, rest = keyPlace(key)
  call('HSET', index, rest, number)
  call('HSET', bucketOf('owner', number), field, key)
end
note('entered', number, false)
callNow(tonumber(ARGV[11]))
save()

-- Nearly all visitors who enter wait, in no lottery: the ask is recorded already.
local rank = score > 0 and call('ZRANK', LINE, member)
if rank then
  rank = within(LINE, rank, score)
  if call('ZCARD', ASIDE) > 0 then rank = rank + before(ASIDE, score, member) end
  return {OK, now, room.number, 1, WAITING, rank, 0, 0, 0, 0, lane}
end
asked(number, claim, ttl, sliding)
local answer = {OK, now, room.number, 1}
placeOf(answer, number)
return answer
