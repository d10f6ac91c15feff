-- Move makes a transition that the status machine has decided, if the action has not changed
-- in what the decision depends on.
--
-- ARGV[3] the number   ARGV[4] the guards, and the fields to set   ARGV[5] the event, or ""
-- ARGV[6] the partial result, or ""   ARGV[7] the result, or ""
-- Returns 1, or 0 if the action has changed, or 2 if the outbox is full; and the action.
local number, event = ARGV[3], ARGV[5]
local move = cjson.decode(ARGV[4])
local a = actionOf(number)
if not a then return {now, 0, ''} end
for field, value in pairs(move.guards) do
  if a[field] ~= value then return {now, 0, ''} end
end
if move.landed ~= nil and move.landed ~= (a.flight == 0) then return {now, 0, ''} end
if move.effect == 'resume' and outboxFull() then return {now, 2, ''} end
for field, value in pairs(move.set) do a[field] = value end
if move.closes then a.open, a.total = 0, a.received end
if move.live then touch('a:' .. number) else leave('a:' .. number) end

-- withdraw returns ready jobs to the front of their line. The ready queue's entries of the
-- action then have an old epoch, and are skipped.
local function withdraw()
  if a.ready == 0 then return end
  local moved = a.ready
  charge(a, -moved)
  a.epoch = a.epoch + 1
  while true do
    local run = call('RPOP', P .. 'r:' .. number)
    if not run then break end
    call('LPUSH', P .. 'b:' .. number, run)
  end
  a.back = a.back + moved
end

-- cancelAll ends every job that is not in flight. The stored states may be many: sweep.lua
-- deletes them.
local function cancelAll()
  if a.ready > 0 then
    charge(a, -a.ready)
    a.epoch = a.epoch + 1
  end
  call('UNLINK', P .. 'r:' .. number, P .. 'b:' .. number)
  if (a.keyed or 0) > 0 then countAside(a, -a.keyed) end
  shard.aside[1], shard.aside[2], shard.aside[3] = shard.aside[1] - a.limited, shard.aside[2] - a.throttling, shard.aside[3] - a.failing
  a.limited, a.throttling, a.failing = 0, 0, 0
  a.back, a.next = 0, a.received
  a.canceled = a.received - a.succeeded - a.failed - a.flight
end

-- landAll takes the jobs of a forgotten action out of flight.
local function landAll()
  local states = call('HGETALL', P .. 'j:' .. number)
  local members, freed = {}, {}
  for i = 1, #states, 2 do
    if unpackState(states[i + 1]).phase == IN_FLIGHT then
      members[#members + 1] = memberOf(number, tonumber(states[i]))
      freed[#freed + 1] = states[i]
    end
  end
  each('ZREM', P .. 'leases', members)
  land(a, a.flight)
  letGo(number, a, freed)
  flushKeys()
end

local function deleteDead(below)
  if call('ZCOUNT', P .. 'dz:' .. number, below, '+inf') == 0 then
    call('UNLINK', P .. 'dz:' .. number, P .. 'd:' .. number)
    return
  end
  while true do
    local page = call('ZRANGEBYSCORE', P .. 'dz:' .. number, '-inf', '(' .. below, 'LIMIT', 0, CHUNK)
    if #page == 0 then return end
    call('ZREM', P .. 'dz:' .. number, unpack(page))
    call('HDEL', P .. 'd:' .. number, unpack(page))
  end
end

local function forget()
  if move.live then
    landAll()
    retire(number, a)
  end
  unlinkPages('f:' .. number, a)
  call('UNLINK', P .. 'j:' .. number, P .. 'w:' .. number, P .. 'd:' .. number, P .. 'dz:' .. number, P .. 'x:' .. number, P .. 'z:' .. number, P .. 'v:' .. number)
  flush()
  call('UNLINK', P .. 'a:' .. number)
end

if move.effect == 'forget' then
  forget()
  return {now, 1, ''}
end
if move.effect == 'pause' then withdraw() end
if move.effect == 'cancel' then cancelAll() end
if move.effect == 'replayed' then deleteDead(move.below) end
if move.effect == 'drop' then
  for _, index in ipairs(move.letters or {}) do
    local member = string.format('%d', index)
    call('ZREM', P .. 'dz:' .. number, member)
    call('HDEL', P .. 'd:' .. number, member)
  end
end
if move.effect == 'reduce' then
  call('SET', P .. 'z:' .. number, ARGV[6])
  call('LTRIM', P .. 'o:' .. number, a.reduced - a.trimmed, -1)
  a.trimmed = a.reduced
end
if ARGV[7] ~= '' then call('SET', P .. 'v:' .. number, ARGV[7]) end
announceAction(event, number, a)
if move.retires then
  retire(number, a)
  call('UNLINK', P .. 'z:' .. number)
end
flush()
return {now, 1, cjson.encode(a)}
