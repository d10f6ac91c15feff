-- Job returns the state of one job.
--
-- ARGV[3] the number   ARGV[4] the index; -1 is the first job that has not ended
-- ARGV[5] the page that the search for that begins with   ARGV[6] the maximum of pages and runs
-- to look through
-- Returns nothing if there is no action; else what was found: a state, "none" or "further", where
-- the index is the page to continue at; the index; received jobs; attempts, -1 if they are not
-- known; why a job was turned back; the time of its state; how many jobs of the action are before
-- it, -1 if not counted; and the beginning of the dead letter, with the error, or the result that
-- was kept, behind 1 if it was too large and else 0. Of a job that waits for a key: the jobs with it in
-- flight instead of those before it, and the id of the key.
local number, index, most = ARGV[3], tonumber(ARGV[4]), tonumber(ARGV[6])
local a = actionOf(number)
if not a then return {} end

local function answer(state, attempts, reason, at, before, letter)
  local n = function(value) return string.format('%d', value or 0) end
  return {state, n(index), n(a.received), n(attempts), n(reason), n(at), n(before), letter or ''}
end

-- firstOf returns the first job of a page that has not ended; nil if all have.
local function firstOf(page)
  local size = math.min(PAGE, a.received - page * PAGE)
  local finals = call('GET', P .. 'f:' .. number .. ':' .. page) or ''
  local at = finals:find('\0', 1, true) or #finals + 1
  if at <= size then return page * PAGE + at - 1 end
end

-- find sets the index of the first job that has not ended. It returns false if it is further on.
local function find()
  local first, last = tonumber(ARGV[5]), math.floor((a.received - 1) / PAGE)
  for page = first, math.min(last, first + most - 1) do
    -- The payloads of a page are deleted once all its jobs have ended.
    if call('EXISTS', P .. 'p:' .. number .. ':' .. page) == 1 then
      index = firstOf(page) or index
      if index >= 0 then return true end
    end
  end
  local done = first + most > last
  index = done and a.received or first + most
  return done
end

-- placeIn returns how many jobs are before the job in a list of runs; nil if it is not there.
local function placeIn(key)
  local before = 0
  for at = 0, most - 1, CHUNK do
    local runs = call('LRANGE', key, at, math.min(at + CHUNK, most) - 1)
    for _, run in ipairs(runs) do
      local first, count = runOf(run)
      if index >= first and index < first + count then return before + index - first end
      before = before + count
    end
    if #runs < CHUNK then return nil end
  end
end

local function ended(final)
  if final >= 128 then
    local result = a.results == 1 and call('HGET', P .. 'w:' .. number, string.format('%d', index))
    return answer('succeeded', -1, 0, 0, 0, result or '')
  end
  local letter = call('HGET', P .. 'd:' .. number, string.format('%d', index))
  if letter then
    local attempts, at, size = struct.unpack('>HdI4', letter)
    return answer('failed', attempts, 0, at, 0, letter:sub(1, 14 + size))
  end
  -- A job that failed has lost its dead letter by a replay. One that was canceled in flight is
  -- not told from it then.
  if a.status == 'CANCELED' and (a.replays == 0 or a.failed == 0) then return answer('canceled', -1) end
  return answer('failed', -1)
end

if index == -1 and a.status ~= 'CANCELED' and not find() then return answer('further') end
if index < 0 or index >= a.received then return answer('none') end
local final = readFinal(number, index)
if final > 0 then return ended(final) end
local text = call('HGET', P .. 'j:' .. number, string.format('%d', index))
local s = text and unpackState(text) or freshState()
if s.phase == IN_FLIGHT then return answer('in_flight', s.attempts, 0, s.at) end
if a.status == 'CANCELED' then return answer('canceled', -1) end
if s.phase == ASIDE and s.reason == KEY_LIMITED then
  local id = call('HGET', P .. 'yw:' .. number, string.format('%d', index)) or ''
  return answer('non_ready', s.attempts, s.reason, 0, id ~= '' and keyOf(id).flight or 0, id)
end
if s.phase == ASIDE then return answer('non_ready', s.attempts, s.reason, s.at) end
if index >= a.next then return answer('pending', s.attempts, 0, 0, a.back + index - a.next) end
local before = placeIn(P .. 'b:' .. number)
if before then return answer('pending', s.attempts, 0, 0, before) end
if placeIn(P .. 'r:' .. number) then return answer('ready', s.attempts) end
return answer('pending', s.attempts, 0, 0, -1)
