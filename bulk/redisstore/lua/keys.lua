-- Keys limit the jobs of a tenant that have one key. The rules are those of pebblestore/key.go, and
-- budgets are those of Budget and NextBudget in bulk/limit.go: bulk/storetest tests both.
--
-- An id of a key is TENANT, EXPRESSION and KEY, with line ends between them.
-- `limits` has for k:TENANT, by expression: the rate in millionths per window, or 0; the most in
-- flight, or 0; and the length of the windows of the rate
-- y:ID  what counts for a key: its window, the attempts started in it, the jobs in flight, those that
-- wait, and those that places are kept for, until when
-- yl:ID the jobs that wait, in order; a job that was canceled stays until its turn comes
-- yf:NUMBER the ids of the keys of jobs in flight, by index
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

local function keyOf(id)
  local c = counts[id]
  if not c then
    local text = call('GET', P .. 'y:' .. id)
    c = {stored = text and cjson.decode(text) or {window = 0, started = 0, flight = 0, waiting = 0, awake = 0, till = 0}, limit = limitOfKey(id)}
    local present = math.floor(now / c.limit.window)
    if c.stored.window ~= present then c.stored.window, c.stored.started = present, 0 end
    counts[id] = c
  end
  c.changed = true
  return c.stored, c.limit
end

-- budgetOf is the budget of n windows from one on.
local function budgetOf(rate, from, n)
  local whole, part, i = math.floor(rate / MILLION), rate % MILLION, from % MILLION
  return whole * n + math.floor((i + n) * part / MILLION) - math.floor(i * part / MILLION)
end

local function nextBudget(rate, after)
  if rate == 0 or rate >= MILLION then return after + 1 end
  local i = (after + 1) % MILLION
  return after + math.ceil((math.floor(i * rate / MILLION) + 1) * MILLION / rate) - i
end

local function fullKey(c, l, kept) return l.most > 0 and c.flight + kept >= l.most end

-- ableKey reports whether one more job may start, besides those that places are kept for.
local function ableKey(c, l, kept)
  return not fullKey(c, l, kept) and (l.rate == 0 or c.started + kept < budgetOf(l.rate, c.window, 1))
end

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

-- waitsFor returns the first of a job's keys that allows it no attempt now. A job that has waited takes
-- any place that is free; others go behind those that wait.
local function waitsFor(s, ids)
  for _, id in ipairs(ids) do
    local c, l = keyOf(id)
    local able
    if hasWaited(s) then able = ableKey(c, l, 0) else able = c.waiting == 0 and ableKey(c, l, c.awake) end
    if not able then return id end
  end
end

-- giveUp gives up the place that is kept for a job.
local function giveUp(s, ids)
  if not hasWaited(s) then return end
  for _, id in ipairs(ids) do
    local c = keyOf(id)
    if c.awake > 0 then
      c.awake = c.awake - 1
      return
    end
  end
end

-- waitFor makes a job that was ready wait for a key; in front, if it has waited before.
local function waitFor(number, a, index, s, ids, id)
  local front = hasWaited(s)
  giveUp(s, ids)
  s.phase, s.reason, s.at = ASIDE, KEY_LIMITED, 0
  call('HSET', P .. 'j:' .. number, string.format('%d', index), packState(s))
  call('HSET', P .. 'yw:' .. number, string.format('%d', index), id)
  call(front and 'LPUSH' or 'RPUSH', P .. 'yl:' .. id, memberOf(number, index))
  local c = keyOf(id)
  c.waiting = c.waiting + 1
  countAside(a, 1)
end

-- holdKeys counts a job that starts against its keys.
local function holdKeys(number, a, index, s, ids)
  if #ids == 0 then return end
  giveUp(s, ids)
  for _, id in ipairs(ids) do
    local c = keyOf(id)
    c.flight, c.started = c.flight + 1, c.started + 1
  end
  call('HSET', P .. 'yf:' .. number, string.format('%d', index), cjson.encode(ids))
  a.holds = 1
end

-- rouseOne returns the first job that waits for a key to its line, and keeps a place for it if it can
-- start. It returns false if the job was canceled.
local function rouseOne(c, member)
  local number, index = member:match('^(%d+):(%d+)$')
  local a = actionOf(number)
  local text = a and call('HGET', P .. 'j:' .. number, index)
  local s = text and unpackState(text)
  c.waiting = c.waiting - 1
  if not s or s.phase ~= ASIDE or s.reason ~= KEY_LIMITED or a.status == 'CANCELED' then return false end
  countAside(a, -1)
  s.phase = IN_LINE
  if a.status == 'RUNNING' and a.paused == 0 then
    c.awake, c.till = c.awake + 1, now + KEPT
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
  if now >= c.till then c.awake = 0 end
  while c.waiting > 0 and roused < most and passed < CHUNK and ableKey(c, l, c.awake) do
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

-- letGo reverses holdKeys for jobs that have left flight: the next ones that wait return.
local function letGo(number, a, indexes)
  if a.holds ~= 1 or #indexes == 0 then return end
  for i = 1, #indexes, CHUNK do
    local last = math.min(i + CHUNK - 1, #indexes)
    local held = call('HMGET', P .. 'yf:' .. number, unpack(indexes, i, last))
    call('HDEL', P .. 'yf:' .. number, unpack(indexes, i, last))
    for n = 1, last - i + 1 do
      for _, id in ipairs(held[n] and cjson.decode(held[n]) or {}) do
        local c = keyOf(id)
        c.flight = math.max(0, c.flight - 1)
        rouse(id, 1)
      end
    end
  end
end

-- lookAt returns when dispatch looks at a key next; nil if only the end of an attempt can change
-- anything.
local function lookAt(c, l)
  local at
  if c.waiting > 0 and ableKey(c, l, c.awake) then
    at = now
  elseif c.waiting > 0 and not fullKey(c, l, c.awake) then
    at = nextBudget(l.rate, c.window) * l.window
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
        call('SET', name, cjson.encode(c), 'PX', l.window + LASTING)
      else
        call('DEL', name)
      end
      of.changed = false
    end
  end
end
