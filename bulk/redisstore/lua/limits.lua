-- Limits. The caller computes what a window allows. A script gets a quota for one window, and
-- starts no more than that. The hash `limits` has the limited names: "all", "t:TENANT" and
-- "g:TARGET", whose value is "RATED CONCURRENCY" or "RATED CONCURRENCY WINDOW": 1 if the rate
-- is limited, the most in flight, and the length of the windows that the limit counts in, if it
-- has its own; and the revision that quotas are for. Quotas of another revision are refused.
local terms = cjson.decode(ARGV[3])
local revision = tonumber(call('HGET', P .. 'limits', 'revision'))
-- A shard that was made again starts nothing before it has been sent its limits.
if not revision then return redis.error_reply('NOSHARD there is no ' .. P .. 'limits') end
local NONE = 1e15
local MOST_ASIDE = 100000 -- bulk.MaxKeyLimited
local UNLIMITED = {rated = false, most = 0, window = WINDOW}
local limits = {}

-- limitOf returns the limit of a name. Earlier versions stored "1" for a rate.
local function limitOf(name)
  local found = limits[name]
  if found then return found end
  found = UNLIMITED
  local text = call('HGET', P .. 'limits', name)
  if text then
    local rated, most, length = text:match('^(%d) ?(%d*) ?(%d*)$')
    found = {rated = rated == '1', most = tonumber(most) or 0, window = tonumber(length) or WINDOW}
  end
  limits[name] = found
  return found
end

local function windowOf(name) return math.floor(now / limitOf(name).window) end

local function roll(name, e)
  local present = windowOf(name)
  if e.window ~= present then e.window, e.started = present, 0 end
  return e
end
roll('all', shard)

-- counterOf returns the thing that counts for a limit: the shard, a tenant or a target.
local function counterOf(name)
  if name == 'all' then return shard end
  if name:sub(1, 2) == 't:' then return roll(name, tenantOf(name:sub(3))) end
  return roll(name, targetOf(name:sub(3)))
end

local function readyUnder(name)
  local sum = 0
  if name == 'all' then
    for _, k in pairs(shard.kinds) do
      if not idle(k) then sum = sum + k.ready end
    end
  elseif name:sub(1, 2) == 't:' then
    for kind, l in pairs(tenantOf(name:sub(3)).lines) do
      if not idle(kindOf(kind)) then sum = sum + l.ready end
    end
  else
    for kind, n in pairs(targetOf(name:sub(3)).ready) do
      if n > 0 and not idle(kindOf(kind)) then sum = sum + n end
    end
  end
  return sum
end

local function flightUnder(name)
  if name ~= 'all' then return counterOf(name).flight or 0 end
  local sum = 0
  for _, k in pairs(shard.kinds) do sum = sum + k.flight end
  return sum
end

-- unstarted returns how many more attempts may start in this window under a rate.
local function unstarted(name)
  if not limitOf(name).rated then return NONE end
  local e = counterOf(name)
  if e.of ~= e.window then return 0 end
  return math.max(0, e.quota - e.started)
end

-- slotsOf returns how many jobs may be in flight: a tenant is on one shard, and a single shard
-- has all slots.
local function slotsOf(name)
  local most = limitOf(name).most
  if most == 0 then return NONE end
  if terms.single or name:sub(1, 2) == 't:' then return most end
  return math.min(counterOf(name).slots or 0, most)
end

-- startable returns how many more attempts may start now, and admissible how many more jobs
-- may become ready.
local function startable(name)
  local slots = slotsOf(name)
  if slots < NONE then slots = math.max(0, slots - flightUnder(name)) end
  return math.min(unstarted(name), slots)
end

local function admissible(name)
  local started, slots = unstarted(name), slotsOf(name)
  if name:sub(1, 2) == 't:' and (counterOf(name).aside or 0) >= MOST_ASIDE then return 0 end
  if started == NONE and slots == NONE then return NONE end
  if slots < NONE then slots = slots - flightUnder(name) end
  return math.max(0, math.min(started, slots) - readyUnder(name))
end

-- Adopt quotas of this window if they are higher, and slots if they are newer.
for _, q in ipairs(terms.quotas or {}) do
  local name, of, quota = q[1], q[2], q[3]
  if terms.revision == revision then
    local e = counterOf(name)
    if of == e.window and (e.of ~= of or quota > e.quota) then
      e.of, e.quota = of, quota
      if name ~= 'all' then touch(name) end
      touch('shard')
    end
  end
end
for _, q in ipairs(terms.slots or {}) do
  local name, version, slots = q[1], q[2], q[3]
  if terms.revision == revision then
    local e = counterOf(name)
    if version > (e.version or 0) then
      e.version, e.slots = version, slots
      touch(name == 'all' and 'shard' or name)
    end
  end
end
