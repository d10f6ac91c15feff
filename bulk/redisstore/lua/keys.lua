-- Keys limit the jobs of a tenant that have one key. The rules are those of pebblestore/key.go, and
-- budgets are those of Budget and NextBudget in bulk/limit.go: bulk/storetest tests both.
--
-- An id of a key is TENANT, EXPRESSION and KEY, with line ends between them.
-- A use is such an id, and the cost of an attempt there, which is 0 where each counts 1.
-- `limits` has for k:TENANT, by expression: the rate in millionths per window, or 0; the most in
-- flight, or 0; and the length of the windows of the rate
-- y:ID  what counts for a key: its window, what was started in it, and beyond its budget; the jobs in
-- flight, those that wait, those that places are kept for, what these are charged, and until when
-- yl:ID the jobs that wait, in order, and what each is charged; a job that was canceled stays until
-- its turn comes
-- yf:NUMBER the uses of jobs in flight, by index
-- yt    the ids of keys, by when dispatch looks at them next
local KEY_LIMITED = 3
local KEPT = 5000 -- bulk.KeyKept
local MILLION = 1000000
local counts, keyLimits = {}, {}

local function limitOfKey(id)
  local tenant, expression = id:match('^(.-)\n(.-)\n')
  local of = keyLimits[tenant]
  if not of then
    of = cjson.decode(call('HGET', P .. 'limits', 'k:' .. tenant) or '{}')
    keyLimits[tenant] = of
  end
  local l = of[expression] or {0, 0, WINDOW}
  return {rate = l[1], most = l[2], window = l[3]}
end

-- budgetOf is the budget of n windows from one on.
local function budgetOf(rate, from, n)
  if rate == 0 then return math.huge end
  local whole, part, i = math.floor(rate / MILLION), rate % MILLION, from % MILLION
  return whole * n + math.floor((i + n) * part / MILLION) - math.floor(i * part / MILLION)
end

local function nextBudget(rate, after, needed)
  if rate == 0 then return after + 1 end
  local n = math.max(1, math.floor((needed - 1) * MILLION / rate))
  if rate < MILLION then
    local i = (after + 1) % MILLION
    n = math.ceil((math.floor(i * rate / MILLION) + needed) * MILLION / rate) - i
  end
  while n < MILLION and budgetOf(rate, after + 1, n) < needed do n = n + 1 end
  return after + math.min(n, MILLION)
end

-- rollKey begins the present window of a key, in which it pays what the windows since the last one
-- have not.
local function rollKey(c, l)
  local present, debt = math.floor(now / l.window), c.debt
  local windows = present - c.window
  if windows == 0 then return end
  if debt > 0 and windows > 0 and windows < MILLION then
    debt = debt - budgetOf(l.rate, c.window + 1, windows - 1)
  else
    debt = 0
  end
  c.window, c.started = present, math.max(0, debt)
  c.debt = math.max(0, c.started - budgetOf(l.rate, present, 1))
end

local NEW = {window = 0, started = 0, debt = 0, flight = 0, waiting = 0, awake = 0, kept = 0, till = 0}
local function keyOf(id)
  local c = counts[id]
  if not c then
    local text = call('GET', P .. 'y:' .. id)
    c = {stored = cjson.decode(text or cjson.encode(NEW)), limit = limitOfKey(id)}
    rollKey(c.stored, c.limit)
    counts[id] = c
  end
  c.changed = true
  return c.stored, c.limit
end

-- chargeKey counts n more in the window of a key.
local function chargeKey(c, l, n)
  c.started = math.max(0, c.started + n)
  c.debt = math.max(0, math.min(c.debt + n, c.started - budgetOf(l.rate, c.window, 1)))
end

local function fullKey(c, l, more) return l.most > 0 and c.flight + more >= l.most end

-- ableKey reports whether one more job may start, besides so many others, which are charged so much.
local function ableKey(c, l, awake, kept)
  return not fullKey(c, l, awake) and c.started + kept < budgetOf(l.rate, c.window, 1)
end

local function chargeOf(use) return math.max(1, use[2]) end

-- hasWaited reports whether a job that is ready has waited for a key.
local function hasWaited(s) return s.phase == IN_LINE and s.reason == KEY_LIMITED end

local function countAside(a, n)
  local t = tenantOf(a.tenant)
  t.aside = (t.aside or 0) + n
  a.keyed = (a.keyed or 0) + n
  shard.aside[KEY_LIMITED + 1] = (shard.aside[KEY_LIMITED + 1] or 0) + n
  touch('t:' .. a.tenant)
  touch('shard')
end

-- waitsFor returns the first use of a job whose key allows it no attempt now. A job that has waited takes
-- any place that is free; others go behind those that wait.
local function waitsFor(s, uses)
  for _, use in ipairs(uses) do
    local c, l = keyOf(use[1])
    local able
    if hasWaited(s) then able = ableKey(c, l, 0, 0) else able = c.waiting == 0 and ableKey(c, l, c.awake, c.kept) end
    if not able then return use end
  end
end

-- giveUp gives up the place that is kept for a job.
local function giveUp(s, uses)
  if not hasWaited(s) then return end
  for _, use in ipairs(uses) do
    local c = keyOf(use[1])
    if c.awake > 0 then
      c.awake, c.kept = c.awake - 1, math.max(0, c.kept - chargeOf(use))
      return
    end
  end
end

-- waitFor makes a job that was ready wait for a key; in front, if it has waited before.
local function waitFor(number, a, index, s, uses, use)
  local front, id = hasWaited(s), use[1]
  giveUp(s, uses)
  s.phase, s.reason, s.at = ASIDE, KEY_LIMITED, 0
  call('HSET', P .. 'j:' .. number, string.format('%d', index), packState(s))
  call('HSET', P .. 'yw:' .. number, string.format('%d', index), id)
  call(front and 'LPUSH' or 'RPUSH', P .. 'yl:' .. id, string.format('%s:%d:%d', number, index, chargeOf(use)))
  local c = keyOf(id)
  c.waiting = c.waiting + 1
  countAside(a, 1)
end

-- holdKeys counts a job that starts against its keys.
local function holdKeys(number, a, index, s, uses)
  if #uses == 0 then return end
  giveUp(s, uses)
  for _, use in ipairs(uses) do
    local c, l = keyOf(use[1])
    c.flight = c.flight + 1
    chargeKey(c, l, chargeOf(use))
  end
  call('HSET', P .. 'yf:' .. number, string.format('%d', index), cjson.encode(uses))
  a.holds = 1
end

-- rouseOne returns the first job that waits for a key to its line, and keeps a place for it if it can
-- start. It returns false if the job was canceled.
local function rouseOne(c, member)
  local number, index, charged = member:match('^(%d+):(%d+):(%d+)$')
  local a = actionOf(number)
  local text = a and call('HGET', P .. 'j:' .. number, index)
  local s = text and unpackState(text)
  c.waiting = c.waiting - 1
  if not s or s.phase ~= ASIDE or s.reason ~= KEY_LIMITED or a.status == 'CANCELED' then return false end
  countAside(a, -1)
  s.phase = IN_LINE
  if a.status == 'RUNNING' and a.paused == 0 then
    if c.awake == 0 then c.till = now + KEPT end -- later ones do not put it off
    c.awake, c.kept = c.awake + 1, c.kept + charged
  else
    s.reason = 0
  end
  call('HSET', P .. 'j:' .. number, index, packState(s))
  call('HDEL', P .. 'yw:' .. number, index)
  goBack(number, a, {tonumber(index)})
  touch('a:' .. number)
  return true
end

-- rouse returns up to `most` jobs that wait for a key to their lines, as far as the key allows. It
-- passes over as many that were canceled.
local function rouse(id, most)
  local c, l = keyOf(id)
  local roused, passed = 0, 0
  if now >= c.till then c.awake, c.kept = 0, 0 end
  while c.waiting > 0 and roused < most and passed < CHUNK and ableKey(c, l, c.awake, c.kept) do
    local member = call('LPOP', P .. 'yl:' .. id)
    if not member then
      c.waiting = 0
    elseif rouseOne(c, member) then
      roused = roused + 1
    else
      passed = passed + 1
    end
  end
  return roused
end

-- letGo reverses holdKeys for jobs that have left flight: the next ones that wait return. `costs` has
-- what attempts have really cost, by index.
local function letGo(number, a, indexes, costs)
  if a.holds ~= 1 or #indexes == 0 then return end
  for i = 1, #indexes, CHUNK do
    local last = math.min(i + CHUNK - 1, #indexes)
    local held = call('HMGET', P .. 'yf:' .. number, unpack(indexes, i, last))
    call('HDEL', P .. 'yf:' .. number, unpack(indexes, i, last))
    for n = 1, last - i + 1 do
      for _, use in ipairs(held[n] and cjson.decode(held[n]) or {}) do
        local c, l = keyOf(use[1])
        local cost = costs and costs[indexes[i + n - 1]] or 0
        if cost > 0 and use[2] > 0 then chargeKey(c, l, cost - use[2]) end
        c.flight = math.max(0, c.flight - 1)
        rouse(use[1], 1)
      end
    end
  end
end

-- lookAt returns when dispatch looks at a key next; nil if only the end of an attempt can change
-- anything.
local function lookAt(c, l)
  local at
  if c.waiting > 0 and ableKey(c, l, c.awake, c.kept) then
    at = now
  elseif c.waiting > 0 and not fullKey(c, l, c.awake) then
    at = nextBudget(l.rate, c.window, c.debt + 1) * l.window
  end
  if c.awake > 0 then at = math.min(at or c.till, c.till) end
  return at
end

-- flushKeys writes what counts for keys. That of a key without jobs lasts as long as its window counts.
local function flushKeys()
  for id, of in pairs(counts) do
    if of.changed then
      local c, l = of.stored, of.limit
      local name, at = P .. 'y:' .. id, lookAt(c, l)
      -- A key that only the end of an attempt can change is kept too, for changes of its limit.
      if c.waiting > 0 or at then call('ZADD', P .. 'yt', at or '+inf', id) else call('ZREM', P .. 'yt', id) end
      if c.flight > 0 or c.waiting > 0 or c.awake > 0 then
        call('SET', name, cjson.encode(c))
      elseif c.started > 0 then
        call('SET', name, cjson.encode(c), 'PX', (nextBudget(l.rate, c.window, c.debt + 1) - c.window) * l.window + LASTING)
      else
        call('DEL', name)
      end
      of.changed = false
    end
  end
end
