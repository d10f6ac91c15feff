-- Sweep deletes what is stored of the jobs of a canceled action that are not in flight, in
-- chunks: their states, their due times, and their slots at their limiter. It is idempotent.
--
-- ARGV[3] the number   ARGV[4] the position to continue at, 0 at first
-- Returns the next position, 0 at the end.
local number = ARGV[3]
local a = actionOf(number)
if not a or a.status ~= 'CANCELED' then return '0' end
local page = call('HSCAN', P .. 'j:' .. number, ARGV[4], 'COUNT', 1000)
local fields, members, seen = {}, {}, {}
for i = 1, #page[2], 2 do
  local index, s = page[2][i], unpackState(page[2][i + 1])
  if s.phase ~= IN_FLIGHT and not seen[index] then
    seen[index] = true -- a scan may return things twice
    fields[#fields + 1] = index
    if s.phase == ASIDE then
      members[#members + 1] = number .. ':' .. index
      if s.reason == THROTTLED then book(a, s.at, -1) end
    end
  end
end
each('HDEL', P .. 'j:' .. number, fields)
each('ZREM', P .. 'due', members)
flush()
return page[1]
