-- Import unstage deletes the staged data of an action.
--
-- ARGV[3] the number
local number = ARGV[3]
local text = call('GET', P .. 'i:' .. number)
if not text then return 1 end
local a = cjson.decode(text)
for page = 0, math.floor((a.received - 1) / PAGE) do
  call('UNLINK', P .. 'p:' .. number .. ':' .. page, P .. 'f:' .. number .. ':' .. page)
end
for _, kind in ipairs({'j', 'o', 'b', 'c', 'x', 'z', 'v', 'w', 'd', 'dz', 'k', 'i'}) do call('UNLINK', P .. kind .. ':' .. number) end
return 1
