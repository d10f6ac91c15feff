-- Actions: their tenants, their targets and their jobs.
--
-- Lines, ready queues and the list of returning jobs are lists of runs: "FIRST COUNT", of
-- consecutive jobs. A run that ends in " f" has fresh jobs: they were never leased or turned
-- back, and nothing but their payload is stored.
local function actionOf(number) return get('a:' .. number) end

local function kindOf(name)
  local k = shard.kinds[name]
  if not k then
    k = {ready = 0, flight = 0, finished = 0, busy = 0, since = 0, virtual = 0, asked = -1, users = 0}
    shard.kinds[name] = k
  end
  return k
end

local function tenantOf(name)
  return get('t:' .. name) or put('t:' .. name, {taken = shard.virtual, window = 0, started = 0, quota = 0, of = -1, flight = 0, users = 0, jobs = 0, bytes = 0, lines = {}})
end

-- keep counts jobs and bytes of payloads in what a tenant has stored. It is not below 0, as instances of
-- an earlier version do not count.
local function keep(t, jobs, bytes)
  t.jobs = math.max(0, (t.jobs or 0) + jobs)
  t.bytes = math.max(0, (t.bytes or 0) + bytes)
end

-- count counts all that an action has stored, unless it is counted. An action that an earlier version
-- created is counted from its next upload on.
local function count(a)
  if a.counted == 1 then return end
  a.counted = 1
  keep(tenantOf(a.tenant), a.received, a.bytes)
end

local function lineOf(tenant, kind)
  local l = tenant.lines[kind]
  if not l then
    l = {taken = kindOf(kind).virtual, granted = 0, ready = 0, users = 0}
    tenant.lines[kind] = l
  end
  return l
end

local function targetOf(name)
  return get('g:' .. name) or put('g:' .. name, {window = 0, started = 0, quota = 0, of = -1, slots = 0, version = 0, flight = 0, users = 0, ready = {}})
end

local function limiterOf(a) return 'm:' .. a.tenant .. '\n' .. a.target end

-- enter records that an action is live; retire reverses that.
local function enter(a)
  local t = tenantOf(a.tenant)
  if t.users <= 0 then t.jobs, t.bytes = 0, 0 end
  t.users = t.users + 1
  count(a)
  lineOf(t, a.type).users = lineOf(t, a.type).users + 1
  kindOf(a.type).users = kindOf(a.type).users + 1
  local g = targetOf(a.target)
  g.users = g.users + 1
  touch('t:' .. a.tenant)
  touch('g:' .. a.target)
  touch('shard')
end

-- unlinkPages deletes all pages of an action whose keys begin with a name.
local function unlinkPages(name, a)
  local keys = {}
  for page = 0, math.floor((a.received - 1) / PAGE) do keys[#keys + 1] = P .. name .. ':' .. page end
  for i = 1, #keys, CHUNK do call('UNLINK', unpack(keys, i, math.min(i + CHUNK - 1, #keys))) end
end

local function retire(number, a)
  local t, g, k = tenantOf(a.tenant), targetOf(a.target), kindOf(a.type)
  t.users, g.users, k.users = t.users - 1, g.users - 1, k.users - 1
  if a.counted == 1 then keep(t, -a.received, -a.bytes) end
  local l = lineOf(t, a.type)
  l.users = l.users - 1
  if l.users <= 0 then t.lines[a.type] = nil end
  touch('t:' .. a.tenant)
  touch('g:' .. a.target)
  if k.users <= 0 then
    shard.kinds[a.type] = nil
    call('UNLINK', P .. 'q:' .. a.type) -- its entries were all withdrawn
  end
  leave('a:' .. number)
  call('UNLINK', P .. 'o:' .. number, P .. 'r:' .. number, P .. 'b:' .. number, P .. 'c:' .. number, P .. 'yf:' .. number, P .. 'yw:' .. number)
  if a.status ~= 'CANCELED' then call('UNLINK', P .. 'j:' .. number) end -- a canceled action is swept
  unlinkPages('p:' .. number, a)
end

-- idle reports whether jobs are ready and no worker asks for them. They do not count against
-- limits.
local function idle(k) return k.ready > 0 and window > k.asked + 1 end

local function waitingOf(a) return a.received - a.next + a.back end

-- The state of a job that is neither fresh nor done: the number of its leases, its attempts,
-- its crashes, its phase, its owner, and its deadline or due time.
local IN_LINE, ASIDE, IN_FLIGHT = 0, 1, 2
local RATE_LIMITED, THROTTLED, TRANSIENT = 0, 1, 2
local STATE = '>I4HBBBBHd'

local function packState(s)
  return struct.pack(STATE, s.fence, s.attempts, s.crashes, s.phase, s.reason, (s.lapsed and 1 or 0) + (s.own and 2 or 0), s.owner, s.at)
end

local function unpackState(text)
  local fence, attempts, crashes, phase, reason, flags, owner, at = struct.unpack(STATE, text)
  return {fence = fence, attempts = attempts, crashes = crashes, phase = phase, reason = reason,
    lapsed = flags % 2 == 1, own = flags >= 2, owner = owner, at = at}
end

local function freshState() return {fence = 0, attempts = 0, crashes = 0, phase = IN_LINE, reason = 0, owner = 0, at = 0} end

-- textsOf reads the packed states of jobs, by index. Fresh jobs and finished jobs have none.
local function textsOf(number, indexes)
  local texts = {}
  for i = 1, #indexes, CHUNK do
    local last = math.min(i + CHUNK - 1, #indexes)
    local found = call('HMGET', P .. 'j:' .. number, unpack(indexes, i, last))
    for n = i, last do texts[indexes[n]] = found[n - i + 1] or nil end
  end
  return texts
end

local function statesOf(number, indexes)
  local states = textsOf(number, indexes)
  for index, text in pairs(states) do states[index] = unpackState(text) end
  return states
end

local function memberOf(number, index) return number .. ':' .. string.format('%d', index) end

-- byAction groups the indexes of members by action. It returns the numbers, in order, and the
-- indexes of each.
local function byAction(members)
  local order, by = {}, {}
  for _, member in ipairs(members) do
    local number, index = member:match('^(%d+):(%d+)$')
    if not by[number] then
      by[number] = {}
      order[#order + 1] = number
    end
    local list = by[number]
    list[#list + 1] = index
  end
  return order, by
end

-- toLine collects the state of a job that returns to its line, and its index.
local function toLine(text, s, fields, back)
  s.phase = IN_LINE
  fields[#fields + 1] = text
  fields[#fields + 1] = packState(s)
  back[#back + 1] = tonumber(text)
end

local function runOf(text)
  local first, count, fresh = text:match('^(%d+) (%d+)( ?f?)$')
  return tonumber(first), tonumber(count), fresh ~= ''
end

-- runsOf joins consecutive indexes into runs, in order.
local function runsOf(indexes)
  local runs, first, count = {}, nil, 0
  for _, index in ipairs(indexes) do
    if first and index == first + count then
      count = count + 1
    else
      if first then runs[#runs + 1] = string.format('%d %d', first, count) end
      first, count = index, 1
    end
  end
  if first then runs[#runs + 1] = string.format('%d %d', first, count) end
  return runs
end

-- takeRuns takes up to `most` jobs from the front of a list of runs, and calls f with each
-- run.
local function takeRuns(key, most, f)
  local taken = 0
  while taken < most do
    local text = call('LPOP', key)
    if not text then break end
    local first, count, fresh = runOf(text)
    local n = math.min(count, most - taken)
    if n < count then call('LPUSH', key, string.format('%d %d', first + n, count - n) .. (fresh and ' f' or '')) end
    f(first, n, fresh)
    taken = taken + n
  end
  return taken
end

-- goBack returns jobs to the front of their action's line, behind jobs returned earlier.
local function goBack(number, a, indexes)
  each('RPUSH', P .. 'b:' .. number, runsOf(indexes))
  a.back = a.back + #indexes
end

-- charge changes the counts of ready jobs by n.
local function charge(a, n)
  local k, t, g = kindOf(a.type), tenantOf(a.tenant), targetOf(a.target)
  local l = lineOf(t, a.type)
  a.ready, k.ready, l.ready = a.ready + n, k.ready + n, l.ready + n
  g.ready[a.type] = (g.ready[a.type] or 0) + n
  touch('t:' .. a.tenant)
  touch('g:' .. a.target)
end

-- fly counts n more jobs in flight. Tenants that an earlier version stored count from 0.
local function fly(a, n)
  local k, g, t = kindOf(a.type), targetOf(a.target), tenantOf(a.tenant)
  a.flight, k.flight, g.flight = a.flight + n, k.flight + n, g.flight + n
  t.flight = math.max(0, (t.flight or 0) + n)
  touch('g:' .. a.target)
  touch('t:' .. a.tenant)
end

-- launch and land count jobs in flight.
local function launch(a, n)
  local k = kindOf(a.type)
  if k.flight == 0 then k.since = now end
  fly(a, n)
end

local function land(a, n)
  if n == 0 then return end
  local k = kindOf(a.type)
  fly(a, -n)
  if k.flight == 0 then k.busy = k.busy + math.max(0, now - k.since) end
end

-- book counts the waiting throttled jobs of a limiter, by the window of their slot.
local function book(a, at, n)
  local name = limiterOf(a)
  local m = get(name) or {waiting = 0, at = {}}
  local w = string.format('%d', math.floor(at / WINDOW))
  m.waiting = m.waiting + n
  local left = (m.at[w] or 0) + n
  m.at[w] = left > 0 and left or nil
  put(name, m)
end

-- payloadsOf calls f with the payloads of a run.
local function payloadsOf(number, first, count, f)
  local last = first + count - 1
  while first <= last do
    local page = math.floor(first / PAGE)
    local stop = math.min(last, page * PAGE + PAGE - 1)
    local found = call('LRANGE', P .. 'p:' .. number .. ':' .. page, first - page * PAGE, stop - page * PAGE)
    for i, payload in ipairs(found) do f(first + i - 1, payload) end
    first = stop + 1
  end
end
