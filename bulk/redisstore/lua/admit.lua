-- Admit moves jobs from the lines of their actions into the ready queue, in the order of the
-- grants: of each as many as wait and as all limits allow.
--
-- ARGV[3] terms: quotas and slots; the virtual times of all shards
-- ARGV[4] and on: number, jobs, and cost of a job in worker time, of each grant
-- Returns the number of admitted jobs, and the time, as quotas are for one window.
for name, virtual in pairs(terms.virtual or {}) do
  if name == '' then
    shard.virtual = math.max(shard.virtual, virtual)
  elseif shard.kinds[name] then
    shard.kinds[name].virtual = math.max(shard.kinds[name].virtual, virtual)
  end
end

local weights = {}
local function stepOf(tenant)
  if not weights[tenant] then weights[tenant] = tonumber(call('HGET', P .. 'weights', tenant)) or 1 end
  return 1 / weights[tenant]
end

-- advance adds n grants to the tags and the count of a line, and to virtual times. The
-- arithmetic is that of Charge in bulk/share.go: bulk/storetest's tagTable tests both.
local function advance(a, n, cost)
  local t, k = tenantOf(a.tenant), kindOf(a.type)
  local l = lineOf(t, a.type)
  local step = stepOf(a.tenant)
  local begin = math.max(t.taken, shard.virtual)
  t.taken = begin + n * step
  shard.virtual = math.max(shard.virtual, begin + (n - 1) * step)
  begin, step = math.max(l.taken, k.virtual), cost * step
  l.taken = begin + n * step
  k.virtual = math.max(k.virtual, begin + (n - 1) * step)
  l.granted = l.granted + n
  touch('t:' .. a.tenant)
end

-- Grants may be many, small and alternating, so they are summed up: one write for each
-- action, and for each queue.
local taken, queues = {}, {}

local function admit(number, a, n, cost)
  taken[number] = (taken[number] or 0) + n
  local queue = queues[a.type] or {}
  queues[a.type] = queue
  queue[#queue + 1] = string.format('%s %d %d', number, a.epoch, n)
  local returned = math.min(n, a.back)
  a.back, a.next = a.back - returned, a.next + n - returned
  a.granted = (a.granted or 0) + n -- an action that an earlier version stored counts from 0
  charge(a, n)
  advance(a, n, cost)
  touch('a:' .. number)
end

-- moveRuns moves n jobs from the front of an action's line to its ready jobs. Those that have
-- not returned are fresh.
local function moveRuns(number, a, n)
  local runs = {}
  local returned = takeRuns(P .. 'b:' .. number, n, function(first, count, fresh)
    runs[#runs + 1] = string.format('%d %d', first, count) .. (fresh and ' f' or '')
  end)
  if returned < n then runs[#runs + 1] = string.format('%d %d f', a.next - (n - returned), n - returned) end
  each('RPUSH', P .. 'r:' .. number, runs)
end

local admitted = 0
for i = 4, #ARGV, 3 do
  local number, jobs = ARGV[i], tonumber(ARGV[i + 1])
  local a = actionOf(number)
  if a and a.status == 'RUNNING' and a.paused == 0 then
    local k = kindOf(a.type)
    if k.ready == 0 then
      k.asked = window
      touch('shard')
    end
    if not idle(k) then
      local n = math.min(jobs, waitingOf(a), admissible('all'), admissible('t:' .. a.tenant), admissible('g:' .. a.target))
      if n > 0 then
        admit(number, a, n, tonumber(ARGV[i + 2]))
        admitted = admitted + n
      end
    end
  end
end
for number, n in pairs(taken) do moveRuns(number, actionOf(number), n) end
for kind, queue in pairs(queues) do each('RPUSH', P .. 'q:' .. kind, queue) end
flush()
return {admitted, now}
