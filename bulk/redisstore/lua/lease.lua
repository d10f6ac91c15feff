-- Lease puts ready jobs in flight, and charges each to the present window. If its answer is
-- lost, the leases expire and the jobs return.
--
-- ARGV[3] terms: quotas and slots; the limits for which more was already requested; the uses of
-- keys by jobs that were offered, by member
-- ARGV[4] the maximum of jobs   ARGV[5] the length of the lease, in ms
-- ARGV[6] 1: leases end with their owner   ARGV[7] the owner
-- ARGV[8] the maximum of payload bytes   ARGV[9] 1: but at least one job
-- ARGV[10] how many workers the caller has; 0: not known
-- ARGV[11] and on: types
-- Returns the time; the deadline; the limits of which more is needed, with the total need;
-- for each run of jobs: number, first index, jobs, then fence, attempt and payload of
-- each; and the offers: number, index and payload of ready jobs whose tenant has limits by key. The
-- caller computes their keys, and asks again.
local most, deadline, own, owner, bytes = tonumber(ARGV[4]), now + tonumber(ARGV[5]), ARGV[6] == '1', tonumber(ARGV[7]), tonumber(ARGV[8])
local asked = terms.asked or {}
local answer, needs, leased = {}, {}, 0
local keysOf, offers = terms.keys or {}, {}
local LARGEST = 1048576 -- a payload of an action that was stored before its largest was recorded

-- know records how many workers an instance has for a type, and forgets instances that are gone.
local function know(k, workers)
  k.pools = k.pools or {}
  local known = k.pools[ARGV[7]]
  if known and known[2] == workers and now - known[1] < 1000 then return end
  k.pools[ARGV[7]] = {now, workers}
  for instance, pool in pairs(k.pools) do
    if now - pool[1] > 10000 then k.pools[instance] = nil end
  end
  touch('shard')
end

local kinds = {}
for i = 11, #ARGV do
  local k = shard.kinds[ARGV[i]]
  if k then
    if ARGV[10] ~= '0' then know(k, tonumber(ARGV[10])) end
    if k.asked ~= window then
      k.asked = window
      touch('shard')
    end
    if k.ready > 0 then kinds[#kinds + 1] = ARGV[i] end
  end
end

local function aside(number, a, index, s, reason, at)
  s.phase, s.reason, s.at = ASIDE, reason, at
  call('HSET', P .. 'j:' .. number, string.format('%d', index), packState(s))
  call('ZADD', P .. 'due', at, memberOf(number, index))
end

-- If the terms are of another revision than this shard's, the remainder is not known.
local stale = terms.revision ~= revision

-- turnBack makes ready jobs wait for the next window of a limit, which was lowered, or allows
-- one less in this window.
local function turnBack(number, a, n, over)
  local at = (windowOf(over) + 1) * limitOf(over).window
  takeRuns(P .. 'r:' .. number, n, function(first, count, fresh)
    local indexes = {}
    for index = first, first + count - 1 do indexes[#indexes + 1] = string.format('%d', index) end
    local states = fresh and {} or statesOf(number, indexes)
    for _, text in ipairs(indexes) do
      aside(number, a, tonumber(text), states[text] or freshState(), RATE_LIMITED, at)
    end
  end)
  charge(a, -n)
  a.limited = a.limited + n
  shard.aside[1] = shard.aside[1] + n
  touch('a:' .. number)
end

local new = freshState()
new.fence, new.attempts, new.phase, new.own, new.owner, new.at = 1, 1, IN_FLIGHT, own, owner, deadline
local packedNew = packState(new)

-- startRun puts the jobs of a run in flight and adds them to the answer. Their states and
-- deadlines are written at the end, those of an action at once.
local started = {}

local function startRun(number, first, count, fresh)
  local indexes = {}
  for i = 1, count do indexes[i] = string.format('%d', first + i - 1) end
  local states = fresh and {} or statesOf(number, indexes)
  local of = started[number]
  local fields, members, last, prefix = of.fields, of.members, #answer + 3, number .. ':'
  local at = #fields
  answer[last - 2], answer[last - 1], answer[last] = number, first, count
  for i = 1, count do
    local text = indexes[i]
    local s, state = states[text], packedNew
    if s then
      s.fence, s.attempts, s.phase, s.lapsed, s.own, s.owner, s.at = s.fence + 1, s.attempts + 1, IN_FLIGHT, false, own, owner, deadline
      s.reason = RATE_LIMITED -- it says nothing of jobs in flight
      state = packState(s)
    end
    fields[at + 2 * i - 1], fields[at + 2 * i] = text, state
    members[at + 2 * i - 1], members[at + 2 * i] = deadline, prefix .. text
    s = s or new
    answer[last + 3 * i - 2], answer[last + 3 * i - 1], answer[last + 3 * i] = s.fence, s.attempts, ''
  end
  payloadsOf(number, first, count, function(index, payload)
    answer[last + 3 * (index - first + 1)] = payload
    bytes = bytes - #payload
  end)
end

-- start takes n jobs of an action from the front of its ready jobs, and charges them.
local function start(number, a, n)
  charge(a, -n)
  launch(a, n)
  local t, g = counterOf('t:' .. a.tenant), counterOf('g:' .. a.target)
  shard.started, t.started, g.started = shard.started + n, t.started + n, g.started + n
  if a.window ~= window then a.window, a.started = window, 0 end
  a.started = a.started + n
  touch('a:' .. number)
  local of = started[number] or {jobs = 0, fields = {}, members = {}}
  started[number] = of
  of.jobs, leased = of.jobs + n, leased + n
  takeRuns(P .. 'r:' .. number, n, function(first, count, fresh) startRun(number, first, count, fresh) end)
end

-- fitting returns how many jobs of an action fit the bytes that are left, whichever they are.
local function fitting(a)
  local n = math.floor(bytes / math.max(1, a.largest or LARGEST))
  if n < 1 and leased == 0 and ARGV[9] == '1' then return 1 end
  return n
end

-- need records that this shard's part of a limit is exhausted, unless more of it was already
-- requested.
local function need(name)
  if asked[name] then return end
  local e = counterOf(name)
  if needs[name] then return end
  local ready, flight = readyUnder(name), flightUnder(name)
  needs[name] = {e.started + ready, flight + ready, math.max(e.slots or 0, flight), e.version or 0}
end

-- blocking returns the limit of the job's tenant or target that is exhausted in this window.
-- The global limit does not count: when it is exhausted, all jobs wait, so they stay ready.
local function blocking(names)
  for _, name in ipairs(names) do
    if name ~= 'all' and asked[name] then return name end
  end
end

-- entriesOf takes entries from the front of a queue, in chunks.
local queues = {}
local function entriesOf(kind)
  local q = queues[kind]
  if not q or q.at > #q then
    q = call('LPOP', P .. 'q:' .. kind, math.min(500, most)) or {}
    q.at = 1
    queues[kind] = q
  end
  return q
end

-- unread puts unused entries back into their queues.
local function unread()
  for kind, q in pairs(queues) do
    local left = {}
    for i = #q, q.at, -1 do left[#left + 1] = q[i] end
    each('LPUSH', P .. 'q:' .. kind, left)
  end
end

-- startKeyed takes up to n jobs of an action whose tenant has limits by key: it starts them, or makes
-- them wait for a key. It returns how many it took and how many of them it started. Jobs whose keys
-- are not known stay.
local function startKeyed(number, a, n)
  local took, begun = 0, 0
  while took < n do
    local first, _, fresh = runOf(call('LINDEX', P .. 'r:' .. number, 0))
    local uses = keysOf[memberOf(number, first)]
    if not uses then break end
    local text = not fresh and call('HGET', P .. 'j:' .. number, string.format('%d', first))
    local s = text and unpackState(text) or freshState()
    local use = waitsFor(s, uses)
    took = took + 1
    if use then
      takeRuns(P .. 'r:' .. number, 1, function() end)
      charge(a, -1)
      touch('a:' .. number)
      waitFor(number, a, first, s, uses, use)
    else
      holdKeys(number, a, first, s, uses)
      start(number, a, 1)
      begun = begun + 1
    end
  end
  return took, begun
end

-- hasKeys reports whether a tenant has limits by key.
local hasKeys = {}
local function isKeyed(tenant)
  if hasKeys[tenant] == nil then hasKeys[tenant] = call('HEXISTS', P .. 'limits', 'k:' .. tenant) == 1 end
  return hasKeys[tenant]
end

-- offer adds the next up to `want` ready jobs of a queue whose keys are not known to the offers.
local function offer(q, want)
  local order, counts = {}, {}
  for at = q.at, #q do
    local number, epoch, count = q[at]:match('^(%d+) (%d+) (%d+)$')
    local a = actionOf(number)
    if want <= 0 then break end
    if a and a.epoch == tonumber(epoch) and isKeyed(a.tenant) then
      if not counts[number] then
        order[#order + 1], counts[number] = number, 0
      end
      counts[number] = counts[number] + math.min(tonumber(count), want)
      want = want - tonumber(count)
    end
  end
  for _, number in ipairs(order) do
    local left = counts[number]
    for _, run in ipairs(call('LRANGE', P .. 'r:' .. number, 0, left - 1)) do
      local first, count = runOf(run)
      if left <= 0 or bytes <= 0 then break end
      payloadsOf(number, first, math.min(count, left), function(index, payload)
        if not keysOf[memberOf(number, index)] and bytes > 0 then
          local last = #offers
          offers[last + 1], offers[last + 2], offers[last + 3] = number, index, payload
          bytes = bytes - #payload
        end
      end)
      left = left - count
    end
  end
end

-- take leases up to `want` jobs of a type. It returns false if the type has no more.
local function take(kind, want)
  while want > 0 and bytes > 0 do
    local q = entriesOf(kind)
    local entry = q[q.at]
    if not entry then return false end
    local number, epoch, count = entry:match('^(%d+) (%d+) (%d+)$')
    local a = actionOf(number)
    count = tonumber(count)
    if not a or a.epoch ~= tonumber(epoch) or a.ready <= 0 then
      q.at = q.at + 1 -- the entry was withdrawn
    else
      local n = math.min(count, want, fitting(a))
      if n < 1 then
        bytes = 0
        return false
      end
      local shorts = {}
      for _, name in ipairs({'all', 't:' .. a.tenant, 'g:' .. a.target}) do
        local left = startable(name)
        if left <= 0 then shorts[#shorts + 1] = name end
        n = math.min(n, left)
      end
      if n > 0 and isKeyed(a.tenant) then
        if stale then return false end -- other keys than the caller knows
        local took, begun = startKeyed(number, a, n)
        want = want - begun
        if took == 0 then
          offer(q, want)
          return false
        end
        n = took
      elseif n > 0 then
        start(number, a, n)
        want = want - n
      elseif blocking(shorts) and not stale then
        turnBack(number, a, count, blocking(shorts))
        n = count
      else
        for _, name in ipairs(shorts) do need(name) end
        return false
      end
      if n == count then q.at = q.at + 1 else q[q.at] = string.format('%s %d %d', number, epoch, count - n) end
    end
  end
  return bytes > 0
end

-- Types are served in turn, also across calls that take one job each.
if #kinds > 0 and most > 0 then
  shard.turn = shard.turn + 1
  touch('shard')
  local turn = shard.turn
  while #kinds > 0 and leased < most and bytes > 0 do
    local share = math.ceil((most - leased) / #kinds)
    local able = {}
    for i = 1, #kinds do
      local kind = kinds[(turn + i) % #kinds + 1]
      if leased < most and take(kind, math.min(share, most - leased)) and kindOf(kind).ready > 0 then able[#able + 1] = kind end
    end
    kinds = able
  end
end
unread()
for number, of in pairs(started) do
  local a = actionOf(number)
  if a.target:byte() ~= 0 then
    call('HINCRBY', P .. 'tally:' .. window, a.tenant .. '\n' .. a.target .. '\ns', of.jobs)
    call('PEXPIRE', P .. 'tally:' .. window, 24 * WINDOW + 60000)
  end
  each('HSET', P .. 'j:' .. number, of.fields)
  each('ZADD', P .. 'leases', of.members)
end
flushKeys()
flush()
return {now, deadline, next(needs) and cjson.encode(needs) or '', answer, offers}
