-- Where a visitor is, as seven integers: state, ahead, drawn, until, since, reason, lane. One integer that is not
-- positive is short for who waits with so many ahead, negated, where no draw or lane decides: nearly all visitors.
local WAITING, CALLED_STATE, INSIDE_STATE, GONE = 1, 2, 3, 4
local FORGOTTEN = 6

-- before counts the members of a sorted set that stand before one that is not in it, in the
-- same lane.
local function before(set, score, member)
  local count = call('ZCOUNT', set, lowest(laneOf(score)), '(' .. score)
  if tonumber(score) < 0 then -- draws may be the same, numbers are not
    for _, other in ipairs(call('ZRANGEBYSCORE', set, score, score)) do
      if tonumber(numberOf(other)) < tonumber(numberOf(member)) then count = count + 1 end
    end
  end
  return count
end

-- within returns the rank in its lane of a member with that rank in a sorted set.
local function within(set, rank, score)
  local lane = laneOf(score)
  if lane > 0 then rank = rank - call('ZCOUNT', set, '-inf', '(' .. lowest(lane)) end
  return rank
end

-- visitOf returns when a visitor was called, at which tick (0: none), how often the pass
-- was renewed, and 1 if the lottery decided the place.
local function visitOf(number)
  local since, tick, renewals, byLot = call('HGET', VISITS, number):match('^(%d+) (%d+) (%d+) (%d)$')
  return tonumber(since), tonumber(tick), tonumber(renewals), tonumber(byLot)
end

local function keepVisit(number, since, tick, renewals, byLot)
  call('HSET', VISITS, number, string.format('%d %d %d %d', since, tick, renewals, byLot))
end

-- stranger appends the place of a ticket or pass whose number another visitor has.
local function stranger(list)
  for _, value in ipairs({GONE, 0, 0, 0, 0, FORGOTTEN, 0}) do list[#list + 1] = value end
  return list
end

-- placeOf appends a visitor's place to a list, and returns the state.
local function placeOf(list, number)
  local state, ahead, byLot, ends, since, reason, lane, _ = GONE, 0, 0, 0, 0, 0, 0, nil
  local member = memberOf(number)
  local rank = call('ZRANK', LINE, member)
  local score = call('ZSCORE', rank and LINE or ASIDE, member)
  if rank then
    state, lane, ahead = WAITING, laneOf(score), within(LINE, rank, score) + before(ASIDE, score, member)
  elseif score then
    ends = tonumber(call('ZSCORE', CALLED, member) or 0)
    if ends == 0 then
      state, lane = WAITING, laneOf(score)
      ahead = within(ASIDE, call('ZRANK', ASIDE, member), score) + before(LINE, score, member)
    else
      state, since = CALLED_STATE, visitOf(number)
    end
  else
    ends = tonumber(call('ZSCORE', INSIDE, member) or 0)
    if ends ~= 0 then
      state = INSIDE_STATE
      since, _, _, byLot = visitOf(number)
    else
      reason = tonumber(call('HGET', bucketOf('gone', number), fieldOf(number)) or FORGOTTEN)
    end
  end
  if score and tonumber(score) < 0 then byLot = 1 end
  for _, value in ipairs({state, ahead, byLot, ends, since, reason, lane}) do list[#list + 1] = value end
  return state
end
