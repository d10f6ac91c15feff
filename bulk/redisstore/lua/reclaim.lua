-- Reclaim returns the jobs that an instance had in flight when it ended to the front of their
-- line. A job that was in flight at too many such ends becomes a dead letter.
--
-- ARGV[3] the instance   ARGV[4] the maximum of crashes of a job
-- ARGV[5] the position to continue at, 0 at first
-- Returns the next position, 0 at the end.
local owner, most, cursor = tonumber(ARGV[3]), tonumber(ARGV[4]), ARGV[5]
local page = call('ZSCAN', P .. 'leases', cursor, 'COUNT', 500)
local members, seen = {}, {}
for i = 1, #page[2], 2 do
  local member = page[2][i]
  if not seen[member] then members[#members + 1] = member end
  seen[member] = true -- a scan may return things twice
end
local order, by = byAction(members)
for _, number in ipairs(order) do
  local a, indexes = actionOf(number), by[number]
  local states = statesOf(number, indexes)
  table.sort(indexes, function(x, y) return tonumber(x) < tonumber(y) end)
  local back, fields, e, taken, freed = {}, {}, ending(), {}, {}
  for _, text in ipairs(indexes) do
    local s, index = states[text], tonumber(text)
    if a and s and s.phase == IN_FLIGHT and s.own and s.owner == owner then
      taken[#taken + 1] = number .. ':' .. text
      freed[#freed + 1] = text
      if a.status == 'CANCELED' then
        cancelJob(e, a, index, s)
      elseif crash(e, number, a, index, s, most) then
        toLine(text, s, fields, back)
      end
    end
  end
  if #taken > 0 then
    each('ZREM', P .. 'leases', taken)
    land(a, #taken)
    record(e, number, a)
    if #fields > 0 then
      each('HSET', P .. 'j:' .. number, fields)
      local runs = runsOf(back)
      for i = #runs, 1, -1 do call('LPUSH', P .. 'b:' .. number, runs[i]) end
      a.back = a.back + #back
    end
    letGo(number, a, freed)
    touch('a:' .. number)
  end
end
flushKeys()
flush()
return page[1]
