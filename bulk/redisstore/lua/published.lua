-- Published deletes the events up to a number.
--
-- ARGV[3] the number
local upTo = tonumber(ARGV[3])
while true do
  local page = call('LRANGE', P .. 'events', 0, 499)
  local done = 0
  for _, entry in ipairs(page) do
    if tonumber(entry:match('^%d+')) > upTo then break end
    done = done + 1
  end
  if done > 0 then call('LTRIM', P .. 'events', done, -1) end
  if done < 500 then return 1 end
end
