-- Import enter makes a staged action known. It is idempotent.
--
-- ARGV[3] the number   ARGV[4] 1 if it is live
-- Returns 1; 0 if it was known already; -1 if it was not staged.
local number = ARGV[3]
if actionOf(number) then return 0 end
local text = call('GET', P .. 'i:' .. number)
if not text then return -1 end
if ARGV[4] ~= '1' then
  call('RENAME', P .. 'i:' .. number, P .. 'a:' .. number)
  return 1
end
local a = put('a:' .. number, cjson.decode(text))
enter(a)
local flight = a.flight
a.flight = 0
if flight > 0 then launch(a, flight) end
shard.aside[1], shard.aside[2], shard.aside[3] = shard.aside[1] + a.limited, shard.aside[2] + a.throttling, shard.aside[3] + a.failing

-- Throttled jobs keep their slots, by window.
if a.throttling > 0 then
  local name = limiterOf(a)
  local m = get(name) or {waiting = 0, at = {}}
  m.waiting = m.waiting + a.throttling
  for w, n in pairs(cjson.decode(call('GET', P .. 'k:' .. number))) do m.at[w] = (m.at[w] or 0) + n end
  put(name, m)
end
call('UNLINK', P .. 'i:' .. number, P .. 'k:' .. number)
flush()
return 1
