-- Limits. The caller computes what a window allows. A script gets a quota for one window, and
-- starts no more than that. The hash `limits` has the limited names: "all", "t:TENANT" and
-- "g:TARGET", whose value is "RATE CONCURRENCY"; and the revision that quotas are for. Quotas
-- of another revision are refused.
local terms = cjson.decode(ARGV[3])
local limits = {}
local function limitOf(name)
  local found = limits[name]
  if found == nil then
    found = call('HGET', P .. 'limits', name)
    limits[name] = found
  end
  return found
end

local NONE = 1e15

local function roll(e)
  if e.window ~= window then e.window, e.started = window, 0 end
end
roll(shard)

-- counterOf returns the thing that counts for a limit: the shard, a tenant or a target.
local function counterOf(name)
  if name == 'all' then return shard end
  local e
  if name:sub(1, 2) == 't:' then e = tenantOf(name:sub(3)) else e = targetOf(name:sub(3)) end
  roll(e)
  return e
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

-- unstarted returns how many more attempts may start in this window under a limit.
local function unstarted(name)
  if not limitOf(name) then return NONE end
  local e = counterOf(name)
  if e.of ~= window then return 0 end
  return math.max(0, e.quota - e.started)
end

-- targetLimits returns whether a target's rate is limited, and its concurrency.
local function targetLimits(name)
  local text = limitOf(name)
  if not text then return false, 0 end
  local rate, most = text:match('^(%d) (%d+)$')
  return rate == '1', tonumber(most)
end

-- A single shard has all slots.
local function slotsOf(g, most) return terms.single and most or math.min(g.slots, most) end

local function startable(name)
  local rate, most = targetLimits(name)
  local left = NONE
  if rate then left = unstarted(name) end
  if most > 0 then
    local g = counterOf(name)
    left = math.min(left, math.max(0, slotsOf(g, most) - g.flight))
  end
  return left
end

-- admissible returns how many more jobs may become ready.
local function admissible(name)
  local left = NONE
  local held = nil
  local rate, most = true, 0
  if name:sub(1, 2) == 'g:' then rate, most = targetLimits(name) end
  if rate and limitOf(name) then
    held = readyUnder(name)
    left = unstarted(name) - held
  end
  if most > 0 then
    local g = counterOf(name)
    left = math.min(left, slotsOf(g, most) - g.flight - (held or readyUnder(name)))
  end
  return math.max(0, left)
end

-- Adopt quotas of this window if they are higher, and slots if they are newer.
for _, q in ipairs(terms.quotas or {}) do
  local name, of, quota = q[1], q[2], q[3]
  if terms.revision == tonumber(limitOf('revision') or 0) then
    local e = counterOf(name)
    if of == window and (e.of ~= window or quota > e.quota) then
      e.of, e.quota = window, quota
      if name ~= 'all' then touch(name) end
      touch('shard')
    end
  end
end
for _, q in ipairs(terms.slots or {}) do
  local name, version, slots = q[1], q[2], q[3]
  if terms.revision == tonumber(limitOf('revision') or 0) then
    local e = counterOf(name)
    if version > e.version then
      e.version, e.slots = version, slots
      touch(name)
    end
  end
end
