-- Settle records the outcomes of leases. It is idempotent: a repeated settlement is a
-- duplicate.
--
-- ARGV[3] and on, for each action: number; settlements, in order, as struct '>I4I4BBddI4': index,
-- fence, kind, 1 if texts follow, due time or deadline, duration in microseconds, cost; the number of
-- texts; and for each settlement that has texts: values, error, result, 1 if the result was cut.
-- Returns the verdicts of each action, one letter each.
local SETTLEMENT, SIZE = '>I4I4BBddI4', 30
local SUCCEEDED, FAILED, RETRY, TURNED_BACK, RELEASED, EXTENDED = 1, 2, 3, 4, 5, 6
local ACCEPTED, DUPLICATE, EXPIRED, UNKNOWN = 'a', 'd', 'e', 'u'
local verdicts = {}

-- tally counts the ended attempts of a limiter in the present window.
local function tally(a, passed, throttled, took, turned)
  local key = P .. 'tally:' .. window
  local name = a.tenant .. '\n' .. a.target .. '\n'
  if passed > 0 then call('HINCRBY', key, name .. 'p', passed) end
  if took > 0 then call('HINCRBY', key, name .. 'd', string.format('%d', took)) end
  if throttled > 0 then
    call('HINCRBY', key, name .. 't', throttled)
    if turned > 0 then call('HINCRBY', key, name .. 'e', string.format('%d', turned)) end
    call('HINCRBY', P .. 'throttled:' .. window, name, throttled)
    call('PEXPIRE', P .. 'throttled:' .. window, 2 * WINDOW + 60000)
  end
  call('PEXPIRE', key, 24 * WINDOW + 60000)
end

-- verdictOf is LeaseState.Verdict of bulk/settlement.go, and the effects of a verdict are
-- SettlementKind.Effect there: bulk/storetest's verdictTable and effectTable test both.
local function verdictOf(number, fence, index, s, finals)
  if not s then
    local final = finals[index] or readFinal(number, index)
    if final == 0 then return UNKNOWN end
    return final % 128 == finalOf(fence, false) and DUPLICATE or EXPIRED
  end
  if fence == 0 or fence > s.fence then return UNKNOWN end
  if fence < s.fence or s.lapsed or s.phase == IN_FLIGHT and now > s.at then return EXPIRED end
  if s.phase ~= IN_FLIGHT then return DUPLICATE end
  return ACCEPTED
end

local i = 3
while i <= #ARGV do
  local number, packed, texts = ARGV[i], ARGV[i + 1], tonumber(ARGV[i + 2])
  local text = i + 3
  i = i + 3 + texts
  local a = actionOf(number)
  local letters = {}
  if not a then
    for n = 1, #packed / SIZE do letters[n] = UNKNOWN end
  else
    local indexes = {}
    for n = 1, #packed / SIZE do indexes[n] = string.format('%d', (struct.unpack('>I4', packed, (n - 1) * SIZE + 1))) end
    local states = textsOf(number, indexes)
    local e, finals, alike = ending(), {}, {}
    local freed, costs = {}, {}
    local landed, passed, throttled, tookSum, turnedSum = {}, 0, 0, 0, 0
    local fields, due, leases, back = {}, {}, {}, {}

    local function keep(index, s)
      states[index] = packState(s)
      fields[#fields + 1] = index
      fields[#fields + 1] = states[index]
    end
    local function setAside(index, s, reason, at)
      s.phase, s.reason, s.at = ASIDE, reason, at
      keep(index, s)
      due[#due + 1] = at
      due[#due + 1] = number .. ':' .. index
      shard.aside[reason + 1] = shard.aside[reason + 1] + 1
    end

    for n, index in ipairs(indexes) do
      local _, fence, kind, has, at, took, cost = struct.unpack(SETTLEMENT, packed, (n - 1) * SIZE + 1)
      -- Jobs that were leased together share one state; a state that is kept is unpacked
      -- again.
      local state = states[index]
      local s = state and alike[state]
      if state and not s then
        s = unpackState(state)
        if s.phase == IN_FLIGHT and (kind == SUCCEEDED or kind == FAILED) then alike[state] = s end
      elseif s and kind ~= SUCCEEDED and kind ~= FAILED then
        s = unpackState(state)
      end
      local verdict = verdictOf(number, fence, tonumber(index), s, finals)
      letters[n] = verdict
      local values, why, result, cut = '', '', '', false
      if has == 1 then
        values, why, result, cut = ARGV[text], ARGV[text + 1], ARGV[text + 2], ARGV[text + 3] == '1'
        text = text + 4
      end
      if verdict == ACCEPTED and kind == EXTENDED then
        s.at = at + now
        keep(index, s)
        leases[#leases + 1] = s.at
        leases[#leases + 1] = number .. ':' .. index
      elseif verdict == ACCEPTED then
        landed[#landed + 1] = number .. ':' .. index
        freed[#freed + 1], costs[index] = index, cost
        if kind == TURNED_BACK then
          throttled, turnedSum = throttled + 1, turnedSum + took
        elseif kind ~= RELEASED then
          passed, tookSum = passed + 1, tookSum + took
        end
        if kind == RETRY and a.status ~= 'CANCELED' and s.attempts >= a.most then kind = FAILED end
        if kind == SUCCEEDED then
          finish(e, number, a, tonumber(index), s, true, took, values, why, result, cut)
        elseif kind == FAILED then
          fail(e, number, a, tonumber(index), s, why, took)
        elseif a.status == 'CANCELED' then
          cancelJob(e, a, tonumber(index), s)
        elseif kind == TURNED_BACK then
          s.attempts = s.attempts - 1
          a.throttled, a.throttling = a.throttled + 1, a.throttling + 1
          book(a, at + now, 1)
          setAside(index, s, THROTTLED, at + now)
        elseif kind == RELEASED and at > 0 then
          s.attempts, a.failing = s.attempts - 1, a.failing + 1
          setAside(index, s, TRANSIENT, at + now)
        elseif kind == RELEASED then
          s.attempts, s.phase = s.attempts - 1, IN_LINE
          keep(index, s)
          back[#back + 1] = tonumber(index)
        else
          a.retried, a.failing = a.retried + 1, a.failing + 1
          setAside(index, s, TRANSIENT, at + now)
        end
        if kind == SUCCEEDED or kind == FAILED or a.status == 'CANCELED' then
          finals[tonumber(index)] = finalOf(s.fence, kind == SUCCEEDED)
          states[index] = nil
        end
      end
    end

    if #fields > 0 then each('HSET', P .. 'j:' .. number, fields) end
    if #leases > 0 then each('ZADD', P .. 'leases', leases) end
    if #landed > 0 then
      each('ZREM', P .. 'leases', landed)
      if #due > 0 then each('ZADD', P .. 'due', due) end
      record(e, number, a)
      goBack(number, a, back)
      land(a, #landed)
      letGo(number, a, freed, costs)
      if passed + throttled > 0 then
        kindOf(a.type).finished = kindOf(a.type).finished + passed
        tally(a, passed, throttled, tookSum, turnedSum)
      end
      touch('a:' .. number)
    end
  end
  verdicts[#verdicts + 1] = table.concat(letters)
end
flushKeys()
flush()
return verdicts
