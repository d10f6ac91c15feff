-- Ended finishes jobs: it writes their final, their outcome, their result or dead letter, and
-- their event.
--
-- A final is one byte for each job: the fence of the lease that finished it, up to 127, plus
-- 128 if it succeeded. It distinguishes a late settlement from a repeated one.
local function finalOf(fence, succeeded) return math.max(1, math.min(fence, 127)) + (succeeded and 128 or 0) end

local function readFinal(number, index)
  local page = math.floor(index / PAGE)
  local byte = call('GETRANGE', P .. 'f:' .. number .. ':' .. page, index - page * PAGE, index - page * PAGE)
  return byte ~= '' and byte:byte() or 0
end

local events = {}

local function tells() return shard.most > 0 end

-- announceEvent puts an event into the outbox: its number, its time, its kind and its data.
-- Events of actions hold the action as it is now.
local function announceEvent(kind, data)
  -- The number follows the clock, so that none is given twice if the newest were lost.
  shard.event = math.max(shard.event + 1, now)
  call('RPUSH', P .. 'events', string.format('%d %d %s ', shard.event, now, kind) .. data)
  touch('shard')
end

local function announceAction(kind, number, a)
  if kind == '' or not tells() then return end
  local result = call('GET', P .. 'v:' .. number)
  announceEvent(kind, cjson.encode({number = number, action = a, spec = call('GET', P .. 'x:' .. number), result = result or nil}))
end

local function outboxFull() return shard.most > 0 and call('LLEN', P .. 'events') >= shard.most end

local JOB = '>I4BHI4I4'
local function announceJob(number, a, job)
  if a.jobs ~= 1 or not tells() then return end
  announceEvent('job', struct.pack(JOB, job.index, (job.succeeded and 1 or 0) + (job.truncated and 2 or 0), job.attempts, #a.id, #a.tenant)
    .. a.id .. a.tenant .. struct.pack('>I4', #job.result) .. job.result .. job.error)
end

-- ending collects the jobs of one action that one script finishes.
local function ending() return {states = {}, finals = {}, outcomes = {}, pages = {}, dead = {}, order = {}, results = {}} end

local function done(e, index, final)
  e.states[#e.states + 1] = string.format('%d', index)
  local page = math.floor(index / PAGE)
  local at = index - page * PAGE
  local finals = e.finals[page]
  if not finals then
    finals = {low = at, high = at}
    e.finals[page] = finals
  end
  finals[at] = final
  if at < finals.low then finals.low = at end
  if at > finals.high then finals.high = at end
  e.pages[page] = (e.pages[page] or 0) + 1
  return page
end

local OUTCOME = '>I4BHdI4'
local function finish(e, number, a, index, s, succeeded, took, values, error, result, truncated)
  local page = done(e, index, finalOf(s.fence, succeeded))
  if a.aggregates == 1 then
    e.outcomes[#e.outcomes + 1] = struct.pack(OUTCOME, index, succeeded and 1 or 0, s.attempts, took, #values) .. values .. error
  end
  if succeeded then
    a.succeeded = a.succeeded + 1
    if a.results == 1 then
      e.results[#e.results + 1] = string.format('%d', index)
      e.results[#e.results + 1] = truncated and '1' or '0' .. result
    end
  else
    a.failed = a.failed + 1
    local payload = call('LINDEX', P .. 'p:' .. number .. ':' .. page, index - page * PAGE) or ''
    e.dead[#e.dead + 1] = string.format('%d', index)
    e.dead[#e.dead + 1] = struct.pack('>HdI4', s.attempts, now, #error) .. error .. payload
    e.order[#e.order + 1] = string.format('%d', index)
    e.order[#e.order + 1] = string.format('%d', index)
  end
  announceJob(number, a, {index = index, succeeded = succeeded, truncated = truncated, attempts = s.attempts, result = result, error = error})
end

local function fail(e, number, a, index, s, error, took) finish(e, number, a, index, s, false, took, '', error, '', false) end

-- crash gives the attempt of a job back, and counts a crash instead. It returns false if that was
-- one too many: then the job has failed.
local function crash(e, number, a, index, s, most)
  s.attempts, s.crashes, s.lapsed = s.attempts - 1, s.crashes + 1, true
  if s.crashes < most then return true end
  fail(e, number, a, index, s, string.format('in flight at %d crashes of the process', s.crashes), 0)
  return false
end

-- cancelJob ends a job that was in flight when its action was canceled.
local function cancelJob(e, a, index, s)
  done(e, index, finalOf(s.fence, false))
  a.canceled = a.canceled + 1
end

-- writeFinals writes the finals of consecutive jobs in one command.
local function writeFinals(e, number)
  for page, finals in pairs(e.finals) do
    local key, bytes, first = P .. 'f:' .. number .. ':' .. page, {}, nil
    for at = finals.low, finals.high + 1 do
      local final = finals[at]
      if final then
        first = first or at
        bytes[#bytes + 1] = string.char(final)
      elseif first then
        call('SETRANGE', key, first, table.concat(bytes))
        bytes, first = {}, nil
      end
    end
  end
end

-- record writes the collected jobs.
local function record(e, number, a)
  if #e.states > 0 then each('HDEL', P .. 'j:' .. number, e.states) end
  writeFinals(e, number)
  if #e.outcomes > 0 then
    each('RPUSH', P .. 'o:' .. number, e.outcomes)
    a.outcomes = a.outcomes + #e.outcomes
  end
  each('HSET', P .. 'w:' .. number, e.results)
  each('HSET', P .. 'd:' .. number, e.dead)
  each('ZADD', P .. 'dz:' .. number, e.order)
  for page, n in pairs(e.pages) do
    local done = call('HINCRBY', P .. 'c:' .. number, page, n)
    -- The last page of an open stream gets more payloads, behind those of its done jobs.
    if done >= (a.open == 1 and PAGE or math.min(PAGE, a.received - page * PAGE)) then
      call('UNLINK', P .. 'p:' .. number .. ':' .. page)
      call('HDEL', P .. 'c:' .. number, page)
    end
  end
end
