-- asked records that a visitor asked. A visitor who was skipped is back in the line;
-- with claim, one who was called is inside, for ttl from now, or from the tick at which
-- it was called. A sliding pass lasts ttl from now. The rule is PassEnd in
-- room/calling.go; storetest/rules.go tests both.
local function asked(number, claim, ttl, sliding)
  local member = memberOf(number)
  if call('ZSCORE', LINE, member) then
    call('HSET', bucketOf('asked', number), fieldOf(number), now)
    return
  end
  local score = call('ZSCORE', ASIDE, member)
  local ends = not score and call('ZSCORE', INSIDE, member)
  if score and call('ZSCORE', CALLED, member) then
    if not claim then
      call('HSET', bucketOf('asked', number), fieldOf(number), now)
      return
    end
    local _, tick = visitOf(number)
    call('ZREM', CALLED, member)
    call('ZREM', ASIDE, member)
    call('HDEL', bucketOf('asked', number), fieldOf(number))
    ends = (tick > 0 and tick or now) + ttl
    call('ZADD', INSIDE, sliding and now + ttl or ends, member)
  elseif score then
    call('ZREM', ASIDE, member)
    call('ZADD', LINE, score, member)
    call('HSET', bucketOf('asked', number), fieldOf(number), now)
  elseif ends and sliding then
    call('ZADD', INSIDE, now + ttl, member)
  end
end
