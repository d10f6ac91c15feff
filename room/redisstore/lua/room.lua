-- The counts and terms of a room, for scripts that make visitors gone or call them.
--
-- ARGV[3]  capacity
-- ARGV[4], ARGV[5]  nobody is called before, nor from then on (0: never)
-- ARGV[6], ARGV[7]  the claim window, and the silence after which a visitor is skipped, in ms
-- ARGV[8]  the time between two expires after which the service was away, in ms
-- ARGV[9]  how many events may wait
-- ARGV[10] how long the reason why a visitor is gone is kept, in ms
-- The last: the shares of the lanes, by number
local FIELDS = {
  'number', 'keyed', 'admitted', 'missed', 'departed', 'expired', 'sequence', 'dropped',
  'beat', 'floor', 'tick', 'left', 'clearing', 'drawn', 'lanes',
}
local room, changed = {}, {}
for i, value in ipairs(call('HMGET', KEYS[1], unpack(FIELDS))) do
  room[FIELDS[i]] = tonumber(value or 0)
end

local function set(field, value)
  room[field] = value
  changed[field] = true
end

-- save writes the fields that were set: each script ends with it.
local function save()
  local fields = {}
  for field in pairs(changed) do
    fields[#fields + 1] = field
    fields[#fields + 1] = room[field]
  end
  if #fields > 0 then call('HSET', KEYS[1], unpack(fields)) end
end

-- note records an event, or drops it if too many wait already.
local maxEvents, events = tonumber(ARGV[9]), nil
local function note(kind, number, inside)
  if maxEvents == 0 then return end
  events = events or call('XLEN', EVENTS)
  set('sequence', room.sequence + 1)
  if events >= maxEvents then
    set('dropped', room.dropped + 1)
    return
  end
  events = events + 1
  call('XADD', EVENTS, room.sequence .. '-0', 'type', kind, 'number', number, 'inside', inside and 1 or 0, 'time', now)
end

-- The reasons, as in a place, with their events: as Reason.Event in room/calling.go;
-- storetest/rules.go tests both.
local LEFT, EXPIRED, ABANDONED, REVOKED, ENDED_REASON = 1, 2, 3, 4, 5
local EVENT_OF = {'left', 'expired', 'abandoned', 'revoked', 'abandoned'}

-- depart makes a visitor gone who is in the line, called or inside.
local function depart(number, reason)
  local member, field = memberOf(number), fieldOf(number)
  local inside = call('ZREM', INSIDE, member) == 1
  local active = inside
  if not inside then
    active = call('ZREM', CALLED, member) == 1
    if call('ZREM', ASIDE, member) == 0 then call('ZREM', LINE, member) end
    call('HDEL', bucketOf('asked', number), field)
  end
  if active then
    call('HDEL', VISITS, number)
    if reason == EXPIRED then set('expired', room.expired + 1) end
  end
  if not inside then set('departed', room.departed + 1) end
  if active and not inside then set('missed', room.missed + 1) end
  call('HDEL', bucketOf('ticket', number), field)
  if room.keyed == 1 then
    local owners = bucketOf('owner', number)
    local key = call('HGET', owners, field)
    if key then
      call('HDEL', owners, field)
      call('HDEL', keyPlace(key))
    end
  end
  local gone = bucketOf('gone', number)
  call('HSET', gone, field, reason)
  call('PEXPIRE', gone, ARGV[10])
  note(EVENT_OF[reason], number, active)
end

-- ending returns the first visitors whose claim window or pass ends until a time, ordered
-- by its end and then by number: at most so many.
local function ending(till, most)
  local list = {}
  for _, set in ipairs({CALLED, INSIDE}) do
    local members = call('ZRANGEBYSCORE', set, '-inf', till, 'WITHSCORES', 'LIMIT', 0, most)
    for i = 1, #members, 2 do
      local number = numberOf(members[i])
      list[#list + 1] = {number = number, order = tonumber(number), ends = tonumber(members[i + 1]), called = set == CALLED}
    end
  end
  table.sort(list, function(a, b)
    if a.ends ~= b.ends then return a.ends < b.ends end
    return a.order < b.order
  end)
  for i = #list, most + 1, -1 do list[i] = nil end
  return list
end
