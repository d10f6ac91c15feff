-- Opens every script about a room: the time, and the room itself.
--
-- KEYS[1]  the room's hash. All its other keys begin with that name, so they have its
--          hash tag.
-- ARGV[1]  milliseconds to add to the server's clock
-- ARGV[2]  the revision that the terms are for; "" if the script has none
--
-- Each script answers with integers: first OK or the reason why it did nothing, second
-- its time.
local call = redis.call
local OK, NO_ROOM, STALE, NOT_OPEN, ENDED, LINE_FULL, NOT_RENEWABLE = 0, 1, 2, 3, 4, 5, 6

local time = call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000) + ARGV[1]

-- A room that is made again under its name has another birth, so that no key of the
-- earlier room is found.
local found = call('HMGET', KEYS[1], 'revision', 'birth', 'drawn', 'lanes')
if not found[1] then return {NO_ROOM, now} end
if ARGV[2] ~= '' and ARGV[2] ~= found[1] then return {STALE, now} end
local prefix = KEYS[1] .. ':' .. found[2] .. ':'

local drawn = found[3] == '1' -- the lottery decided places in the line
local lanes = tonumber(found[4] or 0) -- the highest that anybody entered

-- A lane has this many scores, from its number times so many on. Lane 0 has all lower ones too.
local LANE = 1099511627776
local function laneOf(score) return math.max(0, math.floor(tonumber(score) / LANE)) end
local function lowest(lane) return lane == 0 and '-inf' or lane * LANE end

local LINE, ASIDE = prefix .. 'line', prefix .. 'aside'
local CALLED, INSIDE, VISITS = prefix .. 'called', prefix .. 'inside', prefix .. 'visits'
local DUE, EVENTS = prefix .. 'due', prefix .. 'events'

-- Numbers of visitors are text here. As members of sorted sets they begin with a
-- letter for their length, so that of two with one score the lower number is first.
local LETTERS = {'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i', 'j', 'k', 'l', 'm', 'n', 'o', 'p', 'q', 'r', 's'}
local function memberOf(number) return LETTERS[#number] .. number end
local function numberOf(member) return member:sub(2) end

-- Small values are kept in hashes of a hundred visitors, which Redis packs.
local function bucketOf(kind, number) return prefix .. kind .. ':' .. number:sub(1, -3) end
local function fieldOf(number) return number:sub(-2) end

-- fits reports whether a ticket or pass with a fingerprint, '0' for none, is that of the
-- visitor with its number. Visitors of earlier releases have no fingerprint.
local function fits(number, print)
  if print == '0' then return true end
  local kept = call('HGET', bucketOf('ticket', number), fieldOf(number))
  return not kept or kept == print
end

-- Visitors' keys are 16 bytes of a hash; the first 14 bits choose the bucket.
local function keyPlace(key)
  local high, low = key:byte(1, 2)
  return prefix .. string.format('key:%04x', high * 64 + math.floor(low / 4)), key:sub(2)
end
