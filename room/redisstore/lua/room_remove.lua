-- Removes the keys of a room, a thousand at a time: first the room's hash, so that nobody
-- finds the rest. Answers 1 while there is more. It is idempotent.
--
-- KEYS[1] the room's hash
-- KEYS[2] what is being removed: birth -> "last number, whether there were keys"; and
--         later "last number, keys, next bucket of keys"
-- ARGV[1] birth
local call = redis.call
local STEP = 300
local birth = ARGV[1]
local prefix = KEYS[1] .. ':' .. birth .. ':'
local found = call('HMGET', KEYS[1], 'birth', 'number', 'keyed')
if found[1] == birth then
  call('HSET', KEYS[2], birth, (found[2] or 0) .. ' ' .. (found[3] or 0))
  call('DEL', KEYS[1])
end
local rest = call('HGET', KEYS[2], birth)
if not rest then return 0 end

for _, name in ipairs({'line', 'aside', 'called', 'inside', 'visits', 'due', 'events'}) do call('UNLINK', prefix .. name) end
local number, keyed, bucket = rest:match('^(%d+) (%d) ?(%d*)$')
number, bucket = tonumber(number), tonumber(bucket) or 0
if number >= 0 and bucket == 0 then
  local last = math.floor(number / 100)
  local low = math.max(0, last - STEP + 1)
  local names = {}
  for s = last, low, -1 do
    local text = s == 0 and '' or string.format('%d', s)
    for _, kind in ipairs({'asked:', 'gone:', 'owner:', 'ticket:'}) do names[#names + 1] = prefix .. kind .. text end
  end
  call('UNLINK', unpack(names))
  if low > 0 then
    call('HSET', KEYS[2], birth, string.format('%d %s', low * 100 - 1, keyed))
    return 1
  end
end
if keyed == '1' and bucket < 16384 then
  local names = {}
  for b = bucket, math.min(bucket + 999, 16383) do names[#names + 1] = prefix .. 'key:' .. string.format('%04x', b) end
  call('UNLINK', unpack(names))
  call('HSET', KEYS[2], birth, '0 1 ' .. bucket + 1000)
  return 1
end
call('HDEL', KEYS[2], birth)
return 0
