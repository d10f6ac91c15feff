-- Events returns the oldest unpublished events, to one publisher at a time.
--
-- ARGV[3] the publisher   ARGV[4] how long no other publisher gets them, in ms
-- ARGV[5] the maximum of events   ARGV[6] about how many bytes
local holder = call('GET', P .. 'publisher')
if holder and holder ~= ARGV[3] then return {} end
call('SET', P .. 'publisher', ARGV[3], 'PX', ARGV[4])
local answer, bytes, at, most, enough = {}, 0, 0, tonumber(ARGV[5]), tonumber(ARGV[6])
while #answer < most and bytes < enough do
  local page = call('LRANGE', P .. 'events', at, at + 49)
  if #page == 0 then break end
  for _, entry in ipairs(page) do
    if #answer < most and bytes < enough then
      answer[#answer + 1] = entry
      bytes = bytes + #entry
    end
  end
  at = at + #page
end
return answer
